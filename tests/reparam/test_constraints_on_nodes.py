"""Centring and projections act on the kernel-shaped fields inside nodes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    centered_gradient,
    constraint_drift,
    effective,
    metrics,
    project,
    reparametrize,
    sphere_projection,
)
from tests.oracles import projected, rows
from tests.reparam.oracles import without_mean
from tests.reparam.table import FLOAT32, SHAPES, TABLE, Row, random_node
from tests.reparam.trees import assert_near

CASES = ("dense_out_in", "attention_out")

#: Rows of coordinates, which have no mean to remove.
NO_MEAN = [row for row in TABLE if not row.has_mean]

pytestmark = pytest.mark.parametrize("case", CASES)


def params_of(row: Row, case: str) -> dict[str, Any]:
    """A random node, with 0 for the coordinate that nothing reads, as ``from_kernel`` makes it."""
    node = random_node(row, case)
    if not row.has_mean:
        first, *rest = jax.tree.leaves(node)
        axes = SHAPES[case][1]
        place = tuple(0 if n - first.ndim in axes else slice(None) for n in range(first.ndim))
        node = jax.tree.unflatten(jax.tree.structure(node), [first.at[place].set(0), *rest])
    return {"layer": {"kernel": node}}


def split(tree: Any) -> tuple[Any, list[Any]]:
    """The kernel-shaped leaf of the node, and the others."""
    first, *rest = jax.tree.leaves(tree)
    return first, rest


def test_project(row: Row, case: str) -> None:
    params = params_of(row, case)
    axes = SHAPES[case][1]
    put = jax.jit(functools.partial(project, centered=row.has_mean))
    (got, got_rest), (raw, raw_rest) = split(put(params)), split(params)
    assert_near(got, projected(raw, axes, 2.0, centered=row.has_mean), FLOAT32)
    for left, right in zip(got_rest, raw_rest, strict=True):
        np.testing.assert_array_equal(left, right)


def test_sphere_projection(row: Row, case: str) -> None:
    params, gradients = params_of(row, case), params_of(row, case)
    optimizer = optax.chain(optax.sgd(0.1), sphere_projection(squared_radius=3.0, centered=False))
    axes = SHAPES[case][1]

    @jax.jit
    def step(params: Any) -> Any:
        updates, _ = optimizer.update(gradients, optimizer.init(params), params)
        return optax.apply_updates(params, updates)

    (got, got_rest), (raw, raw_rest) = split(step(params)), split(params)
    assert_near(got, projected(0.9 * np.asarray(raw), axes, 3.0, centered=False), FLOAT32)
    for left, right in zip(got_rest, raw_rest, strict=True):
        assert_near(left, 0.9 * np.asarray(right, np.float64), FLOAT32)


@pytest.mark.parametrize("row", [row for row in TABLE if row.has_mean], ids=lambda r: r.name)
def test_centered_gradient(row: Row, case: str) -> None:
    gradients = params_of(row, case)
    axes = SHAPES[case][1]
    transform = centered_gradient()
    got, rest = split(jax.jit(lambda g: transform.update(g, transform.init(g))[0])(gradients))
    raw, raw_rest = split(gradients)
    assert_near(rows(got, axes), without_mean(rows(raw, axes)), FLOAT32)
    for left, right in zip(rest, raw_rest, strict=True):
        np.testing.assert_array_equal(left, right)


def test_drift_is_measured_inside_nodes(row: Row, case: str) -> None:
    params = params_of(row, case)
    matrix = rows(split(params)[0], SHAPES[case][1])
    drift = constraint_drift(params)
    sums = matrix.sum(1) if row.has_mean else np.zeros(1)
    assert_near(drift["sum"], np.abs(sums).max(), FLOAT32)
    assert float(metrics(params)["total/drift_sum"]) == float(drift["sum"])
    norms = np.abs((matrix**2).sum(1) - 2)
    assert_near(drift["squared_norm"], norms.max(), {"rtol": 5e-6, "atol": 2e-5})


@pytest.mark.parametrize("row", NO_MEAN, ids=lambda r: r.name)
def test_coordinates_of_zero_sum_units_have_no_mean_to_remove(row: Row, case: str) -> None:
    """Centered, they would lose a dimension, and the norm of the kernel would not be c."""
    axes = SHAPES[case][1]
    kernel = jnp.asarray(np.random.default_rng(0).normal(size=SHAPES[case][0]), jnp.float32)
    params = {"kernel": row.make(kernel, axes)}
    transform = centered_gradient()
    kept, _ = transform.update(params, transform.init(params))
    assert_near(effective(kept)["kernel"], effective(params)["kernel"], FLOAT32)
    for centered in (True, False):
        tx = sphere_projection(squared_radius=3.0, centered=centered)
        updates, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
        after = optax.apply_updates(params, updates)
        for tree, square in ((project(params, centered=centered), 2.0), (after, 3.0)):
            units = rows(effective(tree)["kernel"], axes)
            assert_near((units**2).sum(1), np.full(len(units), square), FLOAT32)
            assert_near(units.sum(1), np.zeros(len(units)), FLOAT32)


@pytest.mark.parametrize("row", NO_MEAN, ids=lambda r: r.name)
@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("radius", [3.0, None])
def test_the_coordinate_that_nothing_reads_has_no_part_in_a_norm(
    row: Row, case: str, radius: float | None, tangent: bool
) -> None:
    """Random coordinates have one, and gradients with noise would move it."""
    axes = SHAPES[case][1]
    params = {"layer": {"kernel": random_node(row, case)}}
    start = rows(effective(params)["layer"]["kernel"], axes)

    def squares_of(tree: Any) -> Any:
        return (rows(LinearlyConstrained(split(tree)[0], axes).effective(), axes) ** 2).sum(1)

    wanted = squares_of(params) if radius is None else radius
    last = sphere_projection(squared_radius=radius, centered=False, tangent=tangent)
    tx = optax.chain(optax.sgd(0.1), last)
    updates, _ = tx.update(jax.tree.map(jnp.sin, params), tx.init(params), params)
    after = optax.apply_updates(params, updates)
    assert not np.allclose(start, rows(effective(after)["layer"]["kernel"], axes))
    np.testing.assert_allclose(squares_of(after), wanted, **FLOAT32)
    np.testing.assert_allclose(squares_of(project(params, centered=False)), 2.0, **FLOAT32)
    drift = constraint_drift(params)["squared_norm"]
    assert_near(drift, np.abs(squares_of(params) - 2).max(), {"rtol": 5e-6, "atol": 2e-5})


@pytest.mark.parametrize("row", NO_MEAN, ids=lambda r: r.name)
def test_the_norm_of_a_step_is_that_of_the_kernels_step(row: Row, case: str) -> None:
    """Linear in the coordinates: what a step adds to the kernel is the kernel of the step."""
    params, updates = ({"layer": {"kernel": random_node(row, case)}} for _ in range(2))
    axes = SHAPES[case][1]
    moved = LinearlyConstrained(split(updates)[0], axes).effective()
    found = metrics(params, updates)["layer/kernel/update_norm"]
    np.testing.assert_allclose(found, np.linalg.norm(np.asarray(moved, np.float64)), rtol=1e-6)


def test_spectral_norm_inside_scaled(case: str) -> None:
    shape, axes = SHAPES[case]
    params = {
        "k": {"kernel": jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)}
    }
    into = lambda _, kernel, __: Scaled.from_kernel(  # noqa: E731
        SpectrallyNormalized.from_kernel(kernel, axes), axes
    )
    got = project(reparametrize(params, into))["k"]["kernel"].kernel.kernel
    assert_near(got, projected(params["k"]["kernel"], axes, 2.0, centered=True), FLOAT32)
