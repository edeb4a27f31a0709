"""`center` and `project_to_sphere` against float64 NumPy, for any shape, size, offset and type.

The oracle gets the same numbers as the library, rounded to the array's type, so that a difference
is the library's error.
"""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxnorm import center, project_to_sphere
from tests import oracles
from tests.draws import normal

# A sum of m terms has at most m roundings, each of half an eps of the largest term; then come a
# division, a subtraction and the rounding of the result: (m + 4) eps covers them.
ROUNDINGS = 4
# A point of the sphere: the same roundings enter through the norm, plus a root, a division and two
# products, and a second centering: m + 16 of them, relative to the unit's norm sqrt(c).
SPHERE_ROUNDINGS = 16
DTYPES = ("float32", "bfloat16", "float16", "float64")


# Compiled, so that a new shape costs one compilation, not one per operation.
centered_weights = jax.jit(center, static_argnums=1)
on_sphere = jax.jit(project_to_sphere, static_argnums=(1, 2, 3))


def cast(values: Any, dtype: str) -> jax.Array:
    return jnp.asarray(np.asarray(values, np.float64), jnp.dtype(dtype))


def precision(dtype: str) -> contextlib.AbstractContextManager[Any]:
    return jax.enable_x64(dtype == "float64")


def errors_allowed(dtype: str, roundings: int, scale: Any, result: Any) -> Any:
    """Error of float32 arithmetic (float64 for float64) and of one rounding to ``dtype``."""
    wide = np.finfo(np.float64 if dtype == "float64" else np.float32)
    stored = jnp.finfo(jnp.dtype(dtype))
    storage = float(stored.eps) * np.abs(result) + float(stored.tiny)
    return roundings * float(wide.eps) * scale + storage


@st.composite
def shapes_and_axes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape and some of its axes, of either sign, with at least two weights per unit."""
    rank = draw(st.integers(1, 4))
    axes = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    sizes = st.integers(1, 5)
    shape = [draw(st.integers(2, 5)) if axis == axes[0] else draw(sizes) for axis in range(rank)]
    signed = [axis - rank if draw(st.booleans()) else axis for axis in axes]
    return tuple(shape), tuple(signed)


def negative(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(sorted(axis % rank - rank for axis in axes))


@given(shapes_and_axes(), st.integers(0, 99), st.sampled_from(DTYPES), st.integers(-3, 3))
def test_center_equals_the_dense_projector(
    case: tuple[Any, Any], seed: int, dtype: str, exponent: int
) -> None:
    shape, axes = case
    with precision(dtype):
        weights = cast((normal(seed, *shape) + 3) * 10.0**exponent, dtype)
        result = centered_weights(weights, axes)
    assert (result.shape, result.dtype) == (weights.shape, weights.dtype)
    matrix = oracles.rows(weights, negative(axes, weights.ndim))
    size = matrix.shape[1]
    expected = matrix @ (np.eye(size) - np.full((size, size), 1 / size))
    actual = oracles.rows(result, negative(axes, weights.ndim))
    largest = np.abs(matrix).max(1, keepdims=True)
    assert (
        np.abs(actual - expected) <= errors_allowed(dtype, size + ROUNDINGS, largest, expected)
    ).all()


@given(shapes_and_axes(), st.integers(0, 99), st.sampled_from(DTYPES), st.booleans())
def test_project_to_sphere_equals_the_oracle(
    case: tuple[Any, Any], seed: int, dtype: str, centered: bool
) -> None:
    shape, axes = case
    with precision(dtype):
        weights = cast(normal(seed, *shape) + 2, dtype)
        result = on_sphere(weights, axes, 3.0, centered)
    assert (result.shape, result.dtype) == (weights.shape, weights.dtype)
    assert_on_sphere(result, weights, negative(axes, weights.ndim), dtype, 3.0, centered)


def assert_on_sphere(
    result: Any, weights: Any, axes: tuple[int, ...], dtype: str, radius: float, centered: bool
) -> None:
    expected = oracles.projected(weights, axes, radius, centered)
    size = int(np.prod([weights.shape[axis] for axis in axes]))
    allowed = errors_allowed(dtype, size + SPHERE_ROUNDINGS, np.sqrt(radius), expected)
    assert (np.abs(np.asarray(result, np.float64) - expected) <= allowed).all()


@pytest.mark.parametrize("offset", [-1e3, 1e4, 1e5, -1e6])
def test_offsets_of_a_million_deviations_cancel(offset: float) -> None:
    deviations = normal(0, 64, 5)
    weights = cast(deviations / deviations.std(0) + offset, "float32")
    assert_on_sphere(project_to_sphere(weights, 0), weights, (-2,), "float32", 2.0, True)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("magnitude", [1e-16, 1e-10, 1e10, 1e18])
def test_magnitudes_whose_square_is_finite(magnitude: float, centered: bool) -> None:
    weights = cast(normal(1, 16, 4) * magnitude, "float32")
    result = project_to_sphere(weights, 0, centered=centered)
    assert_on_sphere(result, weights, (-2,), "float32", 2.0, centered)


@pytest.mark.parametrize("magnitude", [1e20, 1e30])
def test_a_norm_that_overflows_makes_only_its_unit_nan(magnitude: float) -> None:
    weights = cast(normal(2, 4, 2) * [magnitude, 1.0], "float32")
    result = np.asarray(project_to_sphere(weights, 0))
    assert np.isnan(result[:, 0]).all()
    assert_on_sphere(result[:, 1:], weights[:, 1:], (-2,), "float32", 2.0, True)


def test_single_weights_are_centered_to_zero() -> None:
    assert center(jnp.full((1, 2), 5.0), 0).tolist() == [[0.0, 0.0]]
