"""Batch normalization in evaluation: its roots of stored variances are found in the program."""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import jaxnorm as jn
from jaxnorm._roles import roles_of
from jaxnorm._trace.reading import Reading
from tests.draws import draw

N = 4
ROWS = draw(0, 8, N)
MEAN, VARIANCE = draw(1, 1, N), jnp.square(draw(2, 1, N)) + 0.5
ONES = jnp.ones((1, N))
PARAMS = {
    name: {"kernel": draw(i, N, N), "bias": draw(i + 10, 1, N), "scale": draw(i + 20, 1, N)}
    for i, name in enumerate("abc")
}


@pytest.fixture(autouse=True)
def _promotion(standard_promotion: None) -> None:
    """Other libraries' layers want the standard rules."""


def found(apply: Any, params: Any, *inputs: Any) -> list[str]:
    with jax.numpy_rank_promotion("allow"):
        return sorted(map(str, roles_of(Reading(apply, params, inputs)).normalized))


def dense(p: Any, x: Any) -> Any:
    return x @ p["kernel"] + p["bias"]


def evaluated(p: Any, x: Any, variance: Any = VARIANCE) -> Any:
    return (x - MEAN) * (p["scale"] * jax.lax.rsqrt(variance + 1e-5))


def network(between: Callable[[Any, Any], Any], before: Callable[[Any], Any] = lambda x: x) -> Any:
    """Two layers with something after the first, and a head."""

    def apply(p: Any, x: Any) -> Any:
        x = jnp.tanh(between(p["a"], dense(p["a"], before(x))))
        return dense(p["c"], jnp.tanh(dense(p["b"], x)))

    return apply


def in_one_product(p: Any, x: Any) -> Any:
    """Scale and shift per unit, as a frozen layer computes them."""
    scale = p["scale"] / jnp.sqrt(VARIANCE + 1e-5)
    return x * scale + (p["bias"] - MEAN * scale)


#: Spellings of batch normalization in evaluation after the first layer.
STORED: dict[str, Any] = {
    "rsqrt": network(evaluated),
    "of a new network": network(lambda p, x: evaluated(p, x, ONES)),
    "divided": network(lambda p, x: (x - MEAN) / jnp.sqrt(VARIANCE + 1e-5)),
    "a power": network(lambda p, x: (x - MEAN) * jnp.power(VARIANCE, -0.5)),
    "variance alone": network(lambda p, x: x * jax.lax.rsqrt(VARIANCE)),
    "one product": network(in_one_product),
    "in jit": network(jax.jit(evaluated)),
    "after a sum": network(lambda p, x: evaluated(p, x + jnp.tanh(x))),
    "zero variances replaced": network(
        lambda p, x: (x - MEAN) * jnp.where(VARIANCE > 0, jax.lax.rsqrt(VARIANCE), 1.0)
    ),
}

#: Networks whose roots are not those of what a fitted kernel makes, or not of stored arrays.
OTHERS: dict[str, Any] = {
    "standardized inputs": network(
        lambda p, x: x, lambda x: (x - MEAN) * jax.lax.rsqrt(VARIANCE + 1e-5)
    ),
    "frozen network in front": network(
        lambda p, x: x, lambda x: jnp.tanh(evaluated(PARAMS["b"], x @ PARAMS["b"]["kernel"]))
    ),
    "layer normalization": network(
        lambda p, x: x * jax.lax.rsqrt(jnp.square(x).mean(1, keepdims=True) + 1e-5) * p["scale"]
    ),
    "one number": network(lambda p, x: x / jnp.sqrt(jnp.float32(N))),
    "one number of an array": network(lambda p, x: x / jnp.sqrt(jnp.square(MEAN).mean() + 1e-5)),
    "a weight norm": network(lambda p, x: x * jax.lax.rsqrt((p["scale"] ** 2) + 1.0)),
    "roots that the program counts": network(
        lambda p, x: x * jnp.sqrt(2.0 * jnp.arange(N, dtype=jnp.float32)[None] + 1.0)
    ),
    "constants per unit": network(lambda p, x: (x - MEAN) * VARIANCE),
    "results in the data's units": lambda p, x: (
        network(lambda p, x: x)(p, x) * jnp.sqrt(VARIANCE) + MEAN
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_roots_of_stored_variances_are_found_after_their_kernel(name: str) -> None:
    assert found(STORED[name], PARAMS, ROWS) == ["a/kernel"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_roots_are_not(name: str) -> None:
    assert found(OTHERS[name], PARAMS, ROWS) == []


def test_layers_of_a_scan_are_found() -> None:
    stack = {"ab": jax.tree.map(lambda *x: jnp.stack(x), PARAMS["a"], PARAMS["b"])}

    def apply(p: Any, x: Any) -> Any:
        def turn(x: Any, layer: Any) -> Any:
            return jnp.tanh(evaluated(layer[0], dense(layer[0], x), layer[1])), None

        x, _ = jax.lax.scan(turn, x, (p["ab"], jnp.stack([VARIANCE, VARIANCE])))
        return dense(p["c"], x)

    assert found(apply, stack | {"c": PARAMS["c"]}, ROWS) == ["ab/kernel"]


class Network(nnx.Module):
    """A layer with batch normalization, and a head; ``norm`` makes the normalization."""

    def __init__(self, norm: Callable[[nnx.Rngs], Any]):
        rngs = nnx.Rngs(0)
        self.dense, self.norm = nnx.Linear(N, N, rngs=rngs), norm(rngs)
        self.head = nnx.Linear(N, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(nnx.relu(self.norm(self.dense(x))))


def of_nnx(norm: Callable[[nnx.Rngs], Any]) -> Any:
    apply, params, state = jn.nnx.functionalize(Network(norm))
    return lambda p, x: apply(p, state, x, train=False)[0], params


def of_linen() -> Any:
    layers = [nn.Dense(N), nn.BatchNorm(use_running_average=True), nn.relu, nn.Dense(2)]
    model = nn.Sequential(layers)
    variables = model.init(jax.random.key(0), ROWS)
    statistics = variables["batch_stats"]
    return (
        lambda p, x: model.apply({"params": p, "batch_stats": statistics}, x),
        variables["params"],
    )


def of_haiku() -> Any:
    def forward(x: Any, is_training: bool) -> Any:
        norm = hk.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)
        return hk.Linear(2)(jax.nn.relu(norm(hk.Linear(N)(x), is_training)))

    model = hk.transform_with_state(forward)
    params, state = model.init(jax.random.key(0), ROWS, True)
    return lambda p, x: model.apply(p, state, None, x, False)[0], params


def of_equinox() -> Any:
    keys = jax.random.split(jax.random.key(0))

    def make() -> Any:
        norm = eqx.nn.BatchNorm(N, "rows", mode="ema")
        layers = [eqx.nn.Linear(N, N, key=keys[0]), norm, eqx.nn.Linear(N, 2, key=keys[1])]
        return eqx.nn.Sequential(layers)

    model, state = eqx.nn.make_with_state(make)()
    _, state = jax.vmap(model, axis_name="rows", in_axes=(0, None), out_axes=(0, None))(ROWS, state)
    params, static = eqx.partition(eqx.nn.inference_mode(model), eqx.is_array)
    return lambda p, x: jax.vmap(lambda row: eqx.combine(p, static)(row, state)[0])(x), params


LIBRARIES: dict[str, Any] = {
    "nnx": lambda: of_nnx(lambda rngs: nnx.BatchNorm(N, rngs=rngs)),
    "nnx, frozen": lambda: of_nnx(
        lambda rngs: nnx.BatchNorm(N, use_running_average=True, rngs=rngs)
    ),
    "jaxnorm": lambda: of_nnx(lambda rngs: jn.nnx.BatchNorm(N)),
    "population": lambda: of_nnx(lambda rngs: jn.nnx.PopulationNorm(N)),
    "linen": of_linen,
    "haiku": of_haiku,
    "equinox": of_equinox,
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_evaluating_layers_of_each_library_are_found(name: str) -> None:
    apply, params = LIBRARIES[name]()
    assert len(found(apply, params, ROWS)) == 1


def test_the_call_warns_with_the_way_out_unless_it_keeps_the_weights() -> None:
    apply, params = LIBRARIES["nnx"]()
    with pytest.warns(
        UserWarning, match=r"in evaluation.*dense/kernel.*replace_batch_norm"
    ) as seen:
        jn.normalizer_free(apply, params, optax.sgd(0.1), ROWS)
    for part in ("fold_batch_norm", "fitted=False"):
        assert part in str(seen[0].message)
    kept: Any = {"fitted": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jn.normalizer_free(apply, params, optax.sgd(0.1), ROWS, **kept)
