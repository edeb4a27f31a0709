"""Batch normalization's training in a plain network, against batch normalization itself."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxnorm as jn
from examples.keeping import networks, reference, variants
from examples.keeping.networks import Kind, along, convolution, drawn, plain
from examples.keeping.reference import EPSILON, Settings
from examples.keeping.variants import batch_normalized, cross_entropy, without_scales
from tests.devices import collectives, mesh

CLASSES, ROWS = 3, 6
NETWORKS = {
    name: partial(getattr(networks, name), classes=CLASSES, width=4)
    for name in ("chain", "residual", "bottleneck")
}
NETWORKS |= {
    name: partial(getattr(networks, name), classes=CLASSES, width=4, blocks=3)
    for name in ("mobilenet", "mbconv")
}


def branching(layer: Any, x: jax.Array) -> jax.Array:
    """Two branches, one after a second use of the stem's result, and a concatenation."""
    x = jax.nn.relu(layer("stem", x, Kind(4, 3)))
    a = jax.nn.relu(layer("left", x, Kind(4)))
    b = jnp.tanh(layer("right", x, Kind(3, 3)) + layer("across", a, Kind(3)))
    x = jax.nn.relu(layer("last", jnp.concatenate([a, b, x], -1), Kind(4)))
    return layer("classifier", x.mean((1, 2)), Kind(CLASSES, normalized=False))


NETWORKS["branching"] = branching


@pytest.fixture(autouse=True)
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions as single operations, which compile faster than products of matrices."""
    for module in (reference, variants, networks):
        monkeypatch.setattr(module, "product", convolution)


def minibatch(rows: int = ROWS, dtype: Any = jnp.float32) -> tuple[jax.Array, jax.Array]:
    draw = np.random.default_rng(0)
    x, y = draw.normal(0.3, 1, (rows, 8, 8, 3)), draw.integers(0, CLASSES, rows)
    return jnp.asarray(x, dtype), jnp.asarray(y, jnp.int32)


def parameters(network: Any, x: jax.Array) -> Any:
    """Returns batch normalization's parameters, with scales of both signs."""
    draw = np.random.default_rng(1)
    params = drawn(network, jax.random.key(0), x[:1])
    for leaf in params.values():
        for part in leaf.keys() - {"kernel"}:
            values = draw.normal(part == "scale", 0.3, leaf[part].shape)
            values[0] *= -1 if part == "scale" else 1
            leaf[part] = jnp.asarray(values, x.dtype)
    return params


def called(network: Any, params: Any, x: jax.Array, optimizer: Any = None, **options: Any) -> Any:
    """Returns the model and what the call makes of it."""
    apply = lambda params, x: plain(network, params, x, convolution)  # noqa: E731
    optimizer = optax.sgd(0.1) if optimizer is None else optimizer
    return apply, *jn.moving_average_normalization(
        apply, without_scales(params), optimizer, x, **options
    )


def with_averages(raw: Any, params: Any, averages: Any) -> Any:
    """Returns raw parameters with these of batch normalization, and these averages."""
    result = dict(raw)
    for name, average in averages.items():
        kernel, bias, scale = (params[name][part] for part in ("kernel", "bias", "scale"))
        node = raw[name]["kernel"].replaced(
            direction=kernel, scale=scale, mean=average.mean, variance=average.var
        )
        offset = scale * average.mean / jnp.sqrt(average.var + EPSILON)
        result[name] = {"kernel": node, "bias": bias - offset}
    return result


def of_batch_normalization(gradient: Any) -> Any:
    """Returns a gradient by raw parameters in the tree of batch normalization's."""
    return {
        name: leaf
        if isinstance(leaf["kernel"], jax.Array)
        else {
            "kernel": leaf["kernel"].direction,
            "scale": leaf["kernel"].scale,
            "bias": leaf["bias"],
        }
        for name, leaf in gradient.items()
    }


def assert_close(made: Any, wanted: Any, tolerance: float) -> None:
    """Compares each leaf on the scale of the largest entry of its tree."""
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance * size), made, wanted
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_with_the_averages_of_the_step_it_is_batch_normalization(name: str) -> None:
    with jax.enable_x64(True):
        network, (x, y) = NETWORKS[name], minibatch(dtype=jnp.float64)
        params = parameters(network, x)
        loss = lambda params: cross_entropy(batch_normalized(network, params, x)[0], y)  # noqa: E731
        wanted = jax.jit(jax.value_and_grad(loss))(params)
        _, apply_in_loss, raw, _ = called(network, params, x)
        raw = with_averages(raw, params, batch_normalized(network, params, x)[1])
        made = jax.jit(jax.value_and_grad(lambda raw: cross_entropy(apply_in_loss(raw, x), y)))(raw)
        assert_close((made[0], of_batch_normalization(made[1])), wanted, 1e-10)
