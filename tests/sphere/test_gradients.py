"""Gradients of `project_to_sphere` and `center`, also of units without a direction."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import center, project_to_sphere
from tests import oracles
from tests.draws import normal

#: Errors of `oracles.slopes`, with a margin.
FINITE_DIFFERENCES = {"rtol": 1e-7, "atol": 1e-7}
# One or two float32 roundings of numbers of order one.
ONE_ROUNDING = 2.0**-23

DTYPES = ("float32", "bfloat16", "float16", "float64")
#: Weights of constant units. In binary the mean of equal numbers 0.1 is not 0.1.
CONSTANTS = (0.0, 0.1, 3e4 / 7, -7.7e-5)
FAN_IN = 6


def pulled_back(weights: Any, target: Any, centered: bool) -> tuple[Any, Any]:
    """The projection and the gradient of its product with ``target``, as float64 arrays."""

    @jax.jit
    def both(weights: Any, target: Any) -> tuple[Any, Any]:
        value, pullback = jax.vjp(lambda w: project_to_sphere(w, 0, centered=centered), weights)
        return value, pullback(target)[0]

    value, gradient = both(weights, target)
    assert (value.dtype, gradient.dtype) == (weights.dtype, weights.dtype)
    return np.asarray(value, np.float64), np.asarray(gradient, np.float64)


@pytest.mark.kept("float32", "bfloat16")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centered", [True, False])
def test_a_unit_without_direction_is_zero_with_zero_gradient(centered: bool, dtype: str) -> None:
    """Rounding does not become a direction, and the other units are unchanged."""
    constants = CONSTANTS if centered else (0.0,)
    with jax.enable_x64(dtype == "float64"):
        alive, target = (jnp.asarray(normal(seed, FAN_IN, 3), dtype) for seed in (3, 4))
        dead = jnp.full((FAN_IN, len(constants)), jnp.asarray(constants, dtype))
        mixed = jnp.concatenate([alive[:, :1], dead, alive[:, 1:]], 1)
        mixed_target = jnp.concatenate([target[:, :1], dead + 1, target[:, 1:]], 1)
        value, gradient = pulled_back(mixed, mixed_target, centered)
        expected_value, expected_gradient = pulled_back(alive, target, centered)
    middle = slice(1, 1 + len(constants))
    np.testing.assert_array_equal(value[:, middle], 0)
    np.testing.assert_array_equal(gradient[:, middle], 0)
    tolerance = {"rtol": 2 * float(jnp.finfo(dtype).eps), "atol": ONE_ROUNDING}
    np.testing.assert_allclose(np.delete(value, middle, 1), expected_value, **tolerance)
    np.testing.assert_allclose(np.delete(gradient, middle, 1), expected_gradient, **tolerance)
    assert np.abs(expected_gradient).max() > 0


@pytest.mark.parametrize("size", [3, 49, 147])
def test_a_unit_constant_up_to_rounding_has_no_direction(size: int) -> None:
    """One weight differs from the others by one unit in its last place."""
    weights = np.full((size, 3), [0.1, 0.7, -12.3], np.float32)
    weights[size // 2] = np.nextafter(weights[0], np.float32(100))
    value, gradient = pulled_back(jnp.asarray(weights), jnp.ones((size, 3)), centered=True)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(gradient, 0)


def test_uncentered_single_weights_become_their_sign() -> None:
    """The sphere is two points, along which the gradient is zero."""
    value, gradient = pulled_back(jnp.array([[3.0, -0.25, 0.0]]), jnp.ones((1, 3)), False)
    np.testing.assert_allclose(value, [[2**0.5, -(2**0.5), 0.0]], rtol=ONE_ROUNDING)
    np.testing.assert_allclose(gradient, 0, atol=ONE_ROUNDING)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_gradients_equal_finite_differences(centered: bool, offset: float) -> None:
    weights, target = normal(5, 2, 3, 4) + offset, normal(6, 2, 3, 4)

    def expected(w: Any) -> Any:
        return (oracles.projected(w, (-3, -2), 2.0, centered) * target).sum()

    def loss(w: Any) -> Any:
        return (project_to_sphere(w, (0, -2), centered=centered) * target).sum()

    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(loss))(jnp.asarray(weights))
    np.testing.assert_allclose(gradient, oracles.slopes(expected, weights), **FINITE_DIFFERENCES)


def test_the_gradient_of_center_is_centered() -> None:
    """The projector is symmetric, so it also multiplies the gradient."""
    target = normal(7, 3, 4)
    with jax.enable_x64(True):
        gradient = jax.grad(lambda w: (center(w, 0) * target).sum())(jnp.zeros((3, 4)))
    np.testing.assert_allclose(gradient, target - target.mean(0), **FINITE_DIFFERENCES)


@pytest.mark.parametrize("size", [1e-10, 1e-16])
@pytest.mark.parametrize("centered", [True, False])
def test_the_gradient_of_a_small_unit_scales_as_one_over_its_size(
    centered: bool, size: float
) -> None:
    weights, target = normal(2, FAN_IN, 3), normal(3, FAN_IN, 3)
    expected = pulled_back(jnp.asarray(weights), jnp.asarray(target), centered)[1]
    small = jnp.asarray(weights * size, jnp.float32)
    actual = pulled_back(small, jnp.asarray(target, jnp.float32), centered)[1]
    np.testing.assert_allclose(actual * size, expected, rtol=2e-5, atol=2e-5)
