"""Fixture that runs a test on every row of the table."""

from collections.abc import Iterator

import jax
import pytest

from tests.table import TABLE, Row

#: A composition of other rows, which takes as long as all of them, and further settings of one.
FURTHER = ("noise_adam_sphere", "sphere_uncentered", "sphere_radius_tree", "sphere_tangent")
ROWS = [pytest.param(row, marks=[pytest.mark.slow] if row.name in FURTHER else []) for row in TABLE]


@pytest.fixture(params=ROWS, ids=[row.name for row in TABLE])
def row(request: pytest.FixtureRequest) -> Iterator[Row]:
    """One transform, under strict promotion unless optax's part of the transform needs another."""
    row: Row = request.param
    if row.promotion == "strict":
        yield row
    else:
        with jax.numpy_dtype_promotion(row.promotion):
            yield row
