"""Centering and projections edit the fields of the kernel's shape inside nodes."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

from jaxnorm import (
    centered_gradient,
    constraint_drift,
    fixed_step,
    metrics,
    project,
    sphere_projection,
)
from tests.oracles import from_rows, projected, rows
from tests.reparam.oracles import without_mean
from tests.reparam.table import FLOAT32, SHAPES, TABLE, Row, random_node
from tests.reparam.trees import assert_near

CASES = ("dense_out_in", "attention_out")

#: Rows of coordinates, and of weights.
NO_MEAN = [row for row in TABLE if not row.has_mean]
WEIGHTS = pytest.mark.parametrize(
    "row", [row for row in TABLE if row.has_mean], ids=lambda r: r.name
)

pytestmark = pytest.mark.parametrize("case", CASES)


def params_of(row: Row, case: str) -> dict[str, Any]:
    return {"layer": {"kernel": random_node(row, case)}}


def split(tree: Any) -> tuple[Any, list[Any]]:
    """Leaf of the kernel's shape, and the leaves per unit."""
    kernel, *scales = jax.tree.leaves(tree)
    return kernel, scales


def centered_by_gradients(params: Any) -> Any:
    tx = centered_gradient()
    return tx.update(params, tx.init(params))[0]


def stepped(params: Any) -> Any:
    """Step of SGD with rate 0.1 and the parameters as gradients."""
    tx = optax.chain(optax.sgd(0.1), sphere_projection(squared_radius=3.0, centered=False))
    updates, _ = tx.update(params, tx.init(params), params)
    return optax.apply_updates(params, updates)


#: Edit of the parameters, its oracle for the weights, and its factor for the scales.
EDITS = {
    "project": (project, lambda w, axes: projected(w, axes, 2.0, centered=True), 1.0),
    "sphere": (stepped, lambda w, axes: projected(0.9 * w, axes, 3.0, centered=False), 0.9),
    "center": (
        centered_by_gradients,
        lambda w, axes: from_rows(without_mean(rows(w, axes)), w, axes),
        1.0,
    ),
}


@pytest.mark.parametrize("edit", EDITS)
@WEIGHTS
def test_edits_change_the_weights_of_nodes(row: Row, case: str, edit: str) -> None:
    function, oracle, factor = EDITS[edit]
    params = params_of(row, case)
    (actual, scales), (raw, raw_scales) = split(jax.jit(function)(params)), split(params)
    assert_near(actual, oracle(np.asarray(raw, np.float64), SHAPES[case][1]), FLOAT32)
    for left, right in zip(scales, raw_scales, strict=True):
        assert_near(left, factor * np.asarray(right, np.float64), FLOAT32)


@WEIGHTS
def test_drift_of_nodes(row: Row, case: str) -> None:
    params = params_of(row, case)
    matrix = rows(split(params)[0], SHAPES[case][1])
    drift = constraint_drift(params)
    sums = matrix.sum(1)
    assert_near(drift["sum"], np.abs(sums).max(), FLOAT32)
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
        fixed_step(0.1).init,
        sphere_projection().init,
        sphere_projection(centered=False).init,
    ],
)
def test_coordinates_are_refused(row: Row, case: str, call: Any) -> None:
    with pytest.raises(TypeError, match=r"'layer/kernel.*sphere_projection"):
        call({"layer": {"kernel": random_node(row, case)}})
