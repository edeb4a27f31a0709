"""The Stiefel projection against singular value decompositions in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from jaxnorm import SpectrallyNormalized, layout_from_rules, project_to_stiefel, stiefel_projection
from tests.draws import normal
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


def back(matrix: np.ndarray, weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    moved = np.moveaxis(weights, axes, range(len(axes)))
    return np.moveaxis(matrix.reshape(moved.shape), range(len(axes)), axes)


def size_of(matrix: np.ndarray) -> float:
    rows, columns = matrix.shape
    return float(np.sqrt(RADIUS * max(1, columns / rows)))


def nearest(weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """By the decomposition: every singular value is replaced by the same number."""
    matrix = matrix_of(weights, axes)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return back(size_of(matrix) * left @ right, weights, axes)


def tangent_part(step: np.ndarray, weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """By least squares: what no W S, or S W of a wide matrix, with symmetric S can explain."""
    w, u = matrix_of(weights, axes), matrix_of(step, axes)
    wide = w.shape[0] < w.shape[1]
    w, u = (w.T, u.T) if wide else (w, u)
    pairs = [(i, j) for i in range(w.shape[1]) for j in range(i + 1)]
    units = np.eye(w.shape[1])
    normals = [np.outer(units[i], units[j]) + np.outer(units[j], units[i]) for i, j in pairs]
    across = np.stack([(w @ each).ravel() for each in normals], -1)
    explained = across @ np.linalg.lstsq(across, u.ravel(), rcond=None)[0]
    rest = u - explained.reshape(u.shape)
    return back(rest.T if wide else rest, weights, axes)


@on_shapes
def test_it_is_the_nearest_kernel_of_equal_singular_values(shape: str) -> None:
    sizes, axes = SHAPES[shape]
    weights = normal(0, *sizes)
    with jax.enable_x64(True):
        got = project_to_stiefel(jnp.asarray(weights), axes, RADIUS)
    np.testing.assert_allclose(got, nearest(weights, axes), **FLOAT64)
    units = (np.asarray(got) ** 2).sum(axes)
    assert units.mean() == pytest.approx(RADIUS)
    if len(units.ravel()) <= np.prod([sizes[axis] for axis in axes]):
        np.testing.assert_allclose(units, RADIUS)


@pytest.mark.parametrize("smallest", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("sizes", [(64, 64), (96, 16), (8, 64)])
def test_in_float32_singular_values_are_as_equal_as_is_said(
    sizes: tuple[int, int], smallest: float
) -> None:
    left, values, right = np.linalg.svd(normal(1, *sizes), full_matrices=False)
    weights = left * np.geomspace(1, smallest, len(values)) @ right
    got = np.asarray(project_to_stiefel(jnp.float32(weights), -2, RADIUS), np.float64)
    found = np.linalg.svd(got, compute_uv=False)
    np.testing.assert_allclose(found, size_of(weights), rtol=2e-6)


@pytest.mark.parametrize("tangent", [False, True])
@on_shapes
def test_steps_of_momentum_are_those_of_the_decomposition(shape: str, tangent: bool) -> None:
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


def test_stacked_kernels_are_projected_one_by_one() -> None:
    weights = normal(7, 3, 5, 4)
    with jax.enable_x64(True):
        got = project_to_stiefel(jnp.asarray(weights), -2, RADIUS, stacked=1)
        params, zeros = {"kernel": jnp.asarray(weights)}, {"kernel": jnp.zeros(weights.shape)}
        tx = stiefel_projection(
            layout=layout_from_rules([("kernel", -2)]), squared_radius=RADIUS, stacked=1
        )
        updates, _ = tx.update(zeros, tx.init(params), params)
        landed = optax.apply_updates(params, updates)["kernel"]
    for one, other, each in zip(got, landed, weights, strict=True):
        np.testing.assert_allclose(one, nearest(each, (-2,)), **FLOAT64)
        np.testing.assert_allclose(other, nearest(each, (-2,)), **FLOAT64)


def test_zero_weights_stay_what_they_were() -> None:
    kernel = jnp.float32(nearest(normal(8, 5, 4), (-2,)))
    tx = stiefel_projection(squared_radius=RADIUS)
    params = {"kernel": kernel}
    updates, _ = tx.update({"kernel": -kernel}, tx.init(params), params)
    np.testing.assert_array_equal(updates["kernel"], 0)
    np.testing.assert_array_equal(project_to_stiefel(jnp.zeros((5, 4)), -2), 0)


def test_numbers_of_any_size_are_projected() -> None:
    weights = normal(9, 5, 4)
    for size in (1e-12, 1e12):
        got = project_to_stiefel(jnp.float32(size * weights), -2, RADIUS)
        np.testing.assert_allclose(got, nearest(weights, (-2,)), **FLOAT32_STEPS)


def test_a_stack_is_no_matrix() -> None:
    """Layers in front of the fan-in would be columns of one matrix."""
    stack = jnp.asarray(normal(0, 3, 4, 4), jnp.float32)
    with pytest.raises(ValueError, match=r"stacked=1"):
        project_to_stiefel(stack, -2)
    tx = stiefel_projection(layout=layout_from_rules([("kernel", -2)]))
    with pytest.raises(ValueError, match=r"'layers/kernel'.*stacked=1"):
        tx.init({"layers": {"kernel": stack}})
    one_by_one = jnp.stack([project_to_stiefel(kernel, -2, RADIUS) for kernel in stack])
    projected = project_to_stiefel(stack, -2, RADIUS, stacked=1)
    np.testing.assert_allclose(projected, one_by_one, **FLOAT32_STEPS)
    joined = project_to_stiefel(stack, -2, RADIUS, stacked=0)
    assert joined.shape == stack.shape
    with pytest.raises(ValueError, match=r"SpectrallyNormalized"):
        SpectrallyNormalized.from_kernel(stack, -2)
    node = jax.vmap(lambda kernel: SpectrallyNormalized.from_kernel(kernel, -2))(stack)
    norms = np.linalg.norm(np.asarray(node.effective(), np.float64), 2, (-2, -1))
    np.testing.assert_allclose(norms, 1, **FLOAT32_STEPS)
