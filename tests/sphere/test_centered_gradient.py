"""`centered_gradient` subtracts the mean of each unit, for every kind of kernel."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxnorm import centered_gradient, flax_layout, layout_from_rules
from tests import oracles
from tests.draws import float32
from tests.tolerances import FLOAT32

#: Shapes and fan-in axes of kernels of Flax.
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
    return float32(0.5 + np.random.default_rng(seed).normal(size=shape))


def centered(gradient: Any, layout: Any = flax_layout) -> Any:
    tx = centered_gradient(layout)
    return tx.update(gradient, tx.init(gradient))[0]


def minus_unit_means(gradient: Any, axes: tuple[int, ...]) -> np.ndarray:
    matrix = oracles.rows(gradient, axes)
    return oracles.from_rows(matrix - matrix.mean(1, keepdims=True), gradient, axes)


@pytest.mark.parametrize("name", KERNELS)
def test_each_unit_has_mean_zero(name: str) -> None:
    shape, axes = KERNELS[name]
    gradient = draw(*shape)
    by_name = name not in ("stacked", "attention")
    layout = flax_layout if by_name else layout_from_rules([("kernel", axes)])
    actual = centered({"kernel": gradient, "bias": draw(shape[-1])}, layout)
    np.testing.assert_allclose(actual["kernel"], minus_unit_means(gradient, axes), **FLOAT32)
    np.testing.assert_array_equal(actual["bias"], draw(shape[-1]))
