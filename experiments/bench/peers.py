"""One dense layer with each library's normalized weights, forward and gradient, in one run."""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx
from jaxtyping import Array

from experiments.bench.table import Measured
from experiments.bench.timing import costs_in_turn
from jaxnorm import (
    SpectrallyNormalized,
    WeightNormalized,
    attach_singular_vectors,
    effective,
    power_iteration,
    reparametrize,
)

FAN_IN, UNITS, ROWS = 2304, 512, 16
PLAIN = "plain dense"
COLUMNS = ("layer", "ms", "ratio", "ratio_low", "ratio_high", "gflops", "gbytes")


#: A loss of trainable parameters and inputs, and the parameters.
Subject = tuple[Callable[[Any, Array], Array], Any]


def bench_peers(flags: Any) -> Measured:
    """A dense layer's gradient with jaxnorm's and other libraries' normalized weights."""
    x = jax.random.normal(jax.random.key(0), (ROWS, FAN_IN))
    compiled = {}
    for name, make in PEERS.items():
        subject = make(x)
        if subject is not None:
            loss, params = subject
            run = jax.jit(jax.value_and_grad(loss)).lower(params, x).compile()
            compiled[name] = run, (params, x)
    rows = costs_in_turn(compiled, PLAIN, flags.repeats)
    note = f"{ROWS} rows, fan-in {FAN_IN}, {UNITS} units. Libraries that are missing are left out."
    return Measured(COLUMNS, rows, note)


def _plain(x: Array) -> Subject:
    params = {"kernel": jax.random.normal(jax.random.key(1), (FAN_IN, UNITS))}
    return lambda params, x: jnp.square(x @ params["kernel"]).mean(), params


def _weight_normalized(x: Array) -> Subject:
    loss, params = _plain(x)
    raw = reparametrize(params, WeightNormalized)
    return lambda raw, x: loss(effective(raw), x), raw


def _spectrally_normalized(x: Array) -> Subject:
    """With one power iteration a call, as the others do."""
    loss, params = _plain(x)
    raw = reparametrize(params, SpectrallyNormalized)
    vectors = {"kernel": jnp.ones(UNITS) / jnp.sqrt(1.0 * UNITS)}

    def normalized_loss(raw: Any, x: Array) -> Array:
        nodes = attach_singular_vectors(raw, power_iteration(raw, vectors))
        return loss(effective(nodes), x)

    return normalized_loss, raw


def _linen(wrapper: type[linen.Module], **call: Any) -> Callable[[Array], Subject]:
    def make(x: Array) -> Subject:
        layer = wrapper(linen.Dense(UNITS, use_bias=False))
        variables = layer.init(jax.random.key(1), x, **call)
        rest = {name: value for name, value in variables.items() if name != "params"}

        def loss(params: Any, x: Array) -> Array:
            output, _ = layer.apply({"params": params, **rest}, x, mutable=["batch_stats"], **call)
            return jnp.square(output).mean()

        return loss, variables["params"]

    return make


def _nnx_weight_norm(x: Array) -> Subject:
    layer = nnx.WeightNorm(
        nnx.Linear(FAN_IN, UNITS, use_bias=False, rngs=nnx.Rngs(1)), rngs=nnx.Rngs(1)
    )
    parts: Any = nnx.split(layer, nnx.Param, ...)
    graph, params, rest = parts
    return lambda params, x: jnp.square(nnx.merge(graph, params, rest)(x)).mean(), params


def _equinox(x: Array) -> Subject | None:
    if importlib.util.find_spec("equinox") is None:
        return None
    import equinox

    linear = equinox.nn.Linear(FAN_IN, UNITS, use_bias=False, key=jax.random.key(1))
    params, static = equinox.partition(equinox.nn.WeightNorm(linear), equinox.is_array)

    def loss(params: Any, x: Array) -> Array:
        return jnp.square(jax.vmap(equinox.combine(params, static))(x)).mean()

    return loss, params


def _paramax(x: Array) -> Subject | None:
    loss, params = _plain(x)
    if importlib.util.find_spec("paramax") is None:
        return None
    paramax = importlib.import_module("paramax")
    # paramax normalizes the last axis: its kernel has the units first.
    raw = paramax.WeightNormalization(params["kernel"].T)
    return lambda raw, x: loss({"kernel": paramax.unwrap(raw).T}, x), raw


PEERS: dict[str, Callable[[Array], Subject | None]] = {
    PLAIN: _plain,
    "jaxnorm WeightNormalized": _weight_normalized,
    "linen.WeightNorm": _linen(linen.WeightNorm),
    "nnx.WeightNorm": _nnx_weight_norm,
    "equinox WeightNorm": _equinox,
    "paramax WeightNormalization": _paramax,
    "jaxnorm SpectrallyNormalized": _spectrally_normalized,
    "linen.SpectralNorm": _linen(linen.SpectralNorm, update_stats=True),
}
