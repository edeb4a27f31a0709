"""Gradient centring: the mean of each output unit, whatever the kernel's kind."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import centered_gradient, flax_layout, layout_from_rules
from tests import oracles
from tests.tolerances import FLOAT32

#: Shapes, as Flax has them but for the last two, and the axes that one unit's weights run over.
KERNELS = {
    "dense": ((6, 4), (-2,)),
    "conv1d": ((5, 3, 4), (-3, -2)),
    "conv2d": ((3, 3, 2, 4), (-4, -3, -2)),
    "grouped": ((3, 3, 2, 6), (-4, -3, -2)),
    "depthwise": ((3, 3, 1, 6), (-4, -3, -2)),
    "stacked": ((3, 6, 4), (-2,)),
    "attention": ((6, 2, 3), (-3,)),
}


def draw(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(0.5 + np.random.default_rng(seed).normal(size=shape), jnp.float32)


def centered(gradient: Any, layout: Any = flax_layout) -> Any:
    tx = centered_gradient(layout)
    return tx.update(gradient, tx.init(gradient))[0]


def minus_unit_means(gradient: Any, axes: tuple[int, ...]) -> np.ndarray:
    matrix = oracles.rows(gradient, axes)
    return oracles.from_rows(matrix - matrix.mean(1, keepdims=True), gradient, axes)


@pytest.mark.parametrize("name", KERNELS)
def test_each_output_unit_loses_its_mean(name: str) -> None:
    shape, axes = KERNELS[name]
    gradient = draw(*shape)
    by_name = name not in ("stacked", "attention")
    layout = flax_layout if by_name else layout_from_rules([("kernel", axes)])
    got = centered({"kernel": gradient, "bias": draw(shape[-1])}, layout)
    np.testing.assert_allclose(got["kernel"], minus_unit_means(gradient, axes), **FLOAT32)
    np.testing.assert_array_equal(got["bias"], draw(shape[-1]))


def test_integer_weights_are_an_error() -> None:
    gradient = {"kernel": jnp.ones((3, 2), jnp.int32)}
    # Ours, or, where shape annotations are executed, the one of the executed annotation.
    with pytest.raises(TypeError, match=r"(?s)i(nt)?32.*[Ff]loat"):
        centered(gradient)
