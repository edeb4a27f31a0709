"""Stiefel projections against singular value decompositions in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from jaxnorm import (
    SpectrallyNormalized,
    flax_layout,
    layout_from_rules,
    map_kernels,
    project_to_stiefel,
    stiefel_projection,
)
from tests.draws import float32, normal
from tests.tolerances import FLOAT32_STEPS, FLOAT64

#: Shapes and fan-in axes: more fan-in than units, fewer, convolutions, attention, transposed.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "tall": ((7, 4), (-2,)),
    "wide": ((3, 8), (-2,)),
    "conv": ((3, 3, 2, 5), (-4, -3, -2)),
    "query": ((6, 2, 3), (-3,)),
    "out_in": ((4, 6), (-1,)),
}
RADIUS = 1.5

on_shapes = pytest.mark.parametrize("shape", SHAPES)


def matrix_of(weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Fan-in x units."""
    moved = np.moveaxis(weights, axes, range(len(axes)))
    return moved.reshape(int(np.prod(moved.shape[: len(axes)])), -1)


def unmatrix(matrix: np.ndarray, weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    moved = np.moveaxis(weights, axes, range(len(axes)))
    return np.moveaxis(matrix.reshape(moved.shape), range(len(axes)), axes)


def singular_value(matrix: np.ndarray) -> float:
    rows, columns = matrix.shape
    return float(np.sqrt(RADIUS * max(1, columns / rows)))


def nearest(weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Replaces every singular value by one number."""
    matrix = matrix_of(weights, axes)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return unmatrix(singular_value(matrix) * left @ right, weights, axes)


def tangent_part(step: np.ndarray, weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Residual of least squares on W S, or S W of a wide matrix, with symmetric S."""
    w, u = matrix_of(weights, axes), matrix_of(step, axes)
    wide = w.shape[0] < w.shape[1]
    w, u = (w.T, u.T) if wide else (w, u)
    pairs = [(i, j) for i in range(w.shape[1]) for j in range(i + 1)]
    units = np.eye(w.shape[1])
    normals = [np.outer(units[i], units[j]) + np.outer(units[j], units[i]) for i, j in pairs]
    across = np.stack([(w @ each).ravel() for each in normals], -1)
    explained = across @ np.linalg.lstsq(across, u.ravel(), rcond=None)[0]
    residual = u - explained.reshape(u.shape)
    return unmatrix(residual.T if wide else residual, weights, axes)


@pytest.mark.kept("query", "wide")
@on_shapes
def test_the_projection_is_the_nearest_kernel_of_equal_singular_values(shape: str) -> None:
    sizes, axes = SHAPES[shape]
    weights = normal(0, *sizes)
    with jax.enable_x64(True):
        actual = project_to_stiefel(jnp.asarray(weights), axes, RADIUS)
    np.testing.assert_allclose(actual, nearest(weights, axes), **FLOAT64)
    units = (np.asarray(actual) ** 2).sum(axes)
    assert units.mean() == pytest.approx(RADIUS)
    if len(units.ravel()) <= np.prod([sizes[axis] for axis in axes]):
        np.testing.assert_allclose(units, RADIUS)


@pytest.mark.kept("sizes1-0.01", "sizes2-1.0")
@pytest.mark.parametrize("smallest", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("sizes", [(64, 64), (96, 16), (8, 64)])
def test_float32_singular_values_are_equal_to_the_documented_tolerance(
    sizes: tuple[int, int], smallest: float
) -> None:
    left, values, right = np.linalg.svd(normal(1, *sizes), full_matrices=False)
    weights = left * np.geomspace(1, smallest, len(values)) @ right
    actual = np.asarray(project_to_stiefel(jnp.float32(weights), -2, RADIUS), np.float64)
    singular_values = np.linalg.svd(actual, compute_uv=False)
    np.testing.assert_allclose(singular_values, singular_value(weights), rtol=2e-6)


@pytest.mark.kept("conv-True", "query-False")
@pytest.mark.parametrize("tangent", [False, True])
@on_shapes
def test_momentum_steps_equal_the_decomposition(shape: str, tangent: bool) -> None:
    sizes, axes = SHAPES[shape]
    weights, gradients = nearest(normal(2, *sizes), axes), normal(3, 3, *sizes)
    tx = optax.chain(
        optax.sgd(0.3, momentum=0.9),
        stiefel_projection(
            layout=layout_from_rules([("kernel", axes)]), squared_radius=RADIUS, tangent=tangent
        ),
    )
    with jax.enable_x64(True):
        params = {"kernel": jnp.asarray(weights)}
        state = tx.init(params)
        for gradient in gradients:
            updates, state = jax.jit(tx.update)({"kernel": jnp.asarray(gradient)}, state, params)
            params = optax.apply_updates(params, updates)
    momentum = np.zeros(sizes)
    for gradient in gradients:
        momentum = 0.9 * momentum + gradient
        step = -0.3 * momentum
        step = tangent_part(step, weights, axes) if tangent else step
        weights = nearest(weights + step, axes)
    np.testing.assert_allclose(params["kernel"], weights, **FLOAT64)


def test_stacked_kernels_are_projected_separately() -> None:
    weights = normal(7, 3, 5, 4)
    with jax.enable_x64(True):
        actual = project_to_stiefel(jnp.asarray(weights), -2, RADIUS, stacked=1)
        params, zeros = {"kernel": jnp.asarray(weights)}, {"kernel": jnp.zeros(weights.shape)}
        tx = stiefel_projection(
            layout=layout_from_rules([("kernel", -2)]), squared_radius=RADIUS, stacked=1
        )
        updates, _ = tx.update(zeros, tx.init(params), params)
        updated = optax.apply_updates(params, updates)["kernel"]
    expected = np.stack([nearest(kernel, (-2,)) for kernel in weights])
    np.testing.assert_allclose(actual, expected, **FLOAT64)
    np.testing.assert_allclose(updated, expected, **FLOAT64)


def test_an_update_to_zero_keeps_the_old_weights() -> None:
    kernel = jnp.float32(nearest(normal(8, 5, 4), (-2,)))
    tx = stiefel_projection(squared_radius=RADIUS)
    params = {"kernel": kernel}
    updates, _ = tx.update({"kernel": -kernel}, tx.init(params), params)
    np.testing.assert_array_equal(updates["kernel"], 0)
    np.testing.assert_array_equal(project_to_stiefel(jnp.zeros((5, 4)), -2), 0)


def test_numbers_of_any_size_are_projected() -> None:
    weights = normal(9, 5, 4)
    for size in (1e-12, 1e12):
        actual = project_to_stiefel(jnp.float32(size * weights), -2, RADIUS)
        np.testing.assert_allclose(actual, nearest(weights, (-2,)), **FLOAT32_STEPS)


@pytest.mark.slow
def test_spectral_norms_of_a_stack_under_vmap() -> None:
    stack = float32(normal(0, 3, 4, 4))
    assert project_to_stiefel(stack, -2, stacked=0).shape == stack.shape
    node = jax.vmap(lambda kernel: SpectrallyNormalized.from_kernel(kernel, -2))(stack)
    norms = np.linalg.norm(np.asarray(node.effective(), np.float64), 2, (-2, -1))
    np.testing.assert_allclose(norms, 1, **FLOAT32_STEPS)


def test_a_tree_is_projected_kernel_by_kernel() -> None:
    """A stack of kernels matrix by matrix; the transformation finds nothing to edit afterwards."""
    params = {"a": normal(1, 7, 4), "stack": normal(2, 3, 6, 4), "bias": normal(3, 4)}
    params = {name: jnp.asarray(x, jnp.float32) for name, x in params.items()}
    layout = layout_from_rules([("^a$", -2), ("stack", -2), ("bias", None)])
    stacked = {"a": 0, "stack": 1, "bias": 0}
    result = map_kernels(
        lambda kernel, axes, stack: project_to_stiefel(kernel, axes, RADIUS, stacked=stack),
        *(layout, params, stacked),
    )
    for found, weights in zip(
        (result["a"], *result["stack"]), (params["a"], *params["stack"]), strict=True
    ):
        expected = nearest(np.asarray(weights, np.float64), (-2,))
        np.testing.assert_allclose(found, expected, **FLOAT32_STEPS)
    np.testing.assert_array_equal(result["bias"], params["bias"])
    tx = stiefel_projection(layout=layout, squared_radius=RADIUS, stacked=stacked)
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, result), tx.init(result), result)
    np.testing.assert_allclose(updates["a"], 0, atol=1e-5)


def test_units_have_the_squared_norm_of_a_rectifier_by_default() -> None:
    """2, as on the sphere, of each of the set's functions."""
    params = {"kernel": float32(normal(9, 6, 4))}
    tx = stiefel_projection()
    update, _ = tx.update(jax.tree.map(jnp.ones_like, params), tx.init(params), params)
    for kernel in (
        project_to_stiefel(params["kernel"], -2),
        map_kernels(project_to_stiefel, flax_layout, params)["kernel"],
        optax.apply_updates(params, update)["kernel"],
    ):
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(4), atol=1e-5)
