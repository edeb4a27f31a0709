"""Centring and projections act on the kernel-shaped fields inside nodes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    Scaled,
    SpectrallyNormalized,
    centered_gradient,
    constraint_drift,
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

#: Rows of coordinates, and the others.
NO_MEAN = [row for row in TABLE if not row.has_mean]
WEIGHTS = pytest.mark.parametrize(
    "row", [row for row in TABLE if row.has_mean], ids=lambda r: r.name
)

pytestmark = pytest.mark.parametrize("case", CASES)


def params_of(row: Row, case: str) -> dict[str, Any]:
    return {"layer": {"kernel": random_node(row, case)}}


def split(tree: Any) -> tuple[Any, list[Any]]:
    """The kernel-shaped leaf of the node, and the others."""
    first, *rest = jax.tree.leaves(tree)
    return first, rest


@WEIGHTS
def test_project(row: Row, case: str) -> None:
    params = params_of(row, case)
    axes = SHAPES[case][1]
    put = jax.jit(project)
    (got, got_rest), (raw, raw_rest) = split(put(params)), split(params)
    assert_near(got, projected(raw, axes, 2.0, centered=True), FLOAT32)
    for left, right in zip(got_rest, raw_rest, strict=True):
        np.testing.assert_array_equal(left, right)


@WEIGHTS
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


@WEIGHTS
def test_centered_gradient(row: Row, case: str) -> None:
    gradients = params_of(row, case)
    axes = SHAPES[case][1]
    transform = centered_gradient()
    got, rest = split(jax.jit(lambda g: transform.update(g, transform.init(g))[0])(gradients))
    raw, raw_rest = split(gradients)
    assert_near(rows(got, axes), without_mean(rows(raw, axes)), FLOAT32)
    for left, right in zip(rest, raw_rest, strict=True):
        np.testing.assert_array_equal(left, right)


@WEIGHTS
def test_drift_is_measured_inside_nodes(row: Row, case: str) -> None:
    params = params_of(row, case)
    matrix = rows(split(params)[0], SHAPES[case][1])
    drift = constraint_drift(params)
    sums = matrix.sum(1)
    assert_near(drift["sum"], np.abs(sums).max(), FLOAT32)
    assert float(metrics(params)["total/drift_sum"]) == float(drift["sum"])
    norms = np.abs((matrix**2).sum(1) - 2)
    assert_near(drift["squared_norm"], norms.max(), {"rtol": 5e-6, "atol": 2e-5})


@pytest.mark.parametrize("row", NO_MEAN, ids=lambda r: r.name)
@pytest.mark.parametrize(
    "call",
    [
        project,
        constraint_drift,
        metrics,
        centered_gradient().init,
        sphere_projection().init,
        sphere_projection(centered=False).init,
    ],
)
def test_coordinates_are_refused_as_weights(row: Row, case: str, call: Any) -> None:
    """Their mean is not that of the kernel, and one of them has no part in its norm."""
    with pytest.raises(TypeError, match=r"'layer/kernel.*coordinates.*sphere_projection"):
        call({"layer": {"kernel": random_node(row, case)}})


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
