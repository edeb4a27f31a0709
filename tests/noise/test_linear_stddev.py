"""Noise that grows with depth counts layers in execution order."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxnorm import Scaled, exclude, linear_stddev, read, reparametrize


def params(layers: int) -> Any:
    return {f"layer_{i}": {"kernel": jnp.eye(2), "bias": jnp.zeros(2)} for i in range(layers)}


def apply(params: Any, x: Any) -> Any:
    for i in range(len(params)):
        x = x @ params[f"layer_{i}"]["kernel"] + params[f"layer_{i}"]["bias"][None]
    return x


def test_layers_count_in_execution_order() -> None:
    """The names sort otherwise: layer_10 comes before layer_2."""
    stddev = linear_stddev(read(apply, params(12), jnp.ones((3, 2))), 0.6)
    expected = {f"layer_{i}": {"kernel": 0.6 * (i + 1) / 12, "bias": None} for i in range(12)}
    assert stddev == expected


@pytest.mark.parametrize("raw_of", [lambda p: p, lambda p: reparametrize(p, Scaled)])
def test_layers_of_the_layout_count_and_shapes_and_nodes_suffice(raw_of: Any) -> None:
    shapes = jax.eval_shape(lambda: raw_of(params(3)))
    x = jax.ShapeDtypeStruct((3, 2), jnp.float32)
    stddev = linear_stddev(read(apply, shapes, x), 1.0, layout=exclude("^layer_2/"))
    assert [stddev[f"layer_{i}"]["kernel"] for i in range(3)] == [0.5, 1.0, None]
