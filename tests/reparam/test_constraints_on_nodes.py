"""Centring and projections act on the kernel-shaped fields inside nodes."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

from jaxnorm import (
    centered_gradient,
    constraint_drift,
    metrics,
    project,
    sphere_projection,
)
from tests.oracles import from_rows, projected, rows
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


def centered_by_gradients(params: Any) -> Any:
    tx = centered_gradient()
    return tx.update(params, tx.init(params))[0]


def stepped(params: Any) -> Any:
    """A step of SGD with the parameters for a gradient: a tenth of each is gone."""
    tx = optax.chain(optax.sgd(0.1), sphere_projection(squared_radius=3.0, centered=False))
    updates, _ = tx.update(params, tx.init(params), params)
    return optax.apply_updates(params, updates)


#: What is done to the parameters, what it makes of the weights and by what it shrinks the scales.
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
def test_weights_inside_nodes_are_edited_and_nothing_else(row: Row, case: str, edit: str) -> None:
    function, oracle, factor = EDITS[edit]
    params = params_of(row, case)
    (got, got_rest), (raw, raw_rest) = split(jax.jit(function)(params)), split(params)
    assert_near(got, oracle(np.asarray(raw, np.float64), SHAPES[case][1]), FLOAT32)
    for left, right in zip(got_rest, raw_rest, strict=True):
        assert_near(left, factor * np.asarray(right, np.float64), FLOAT32)


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
