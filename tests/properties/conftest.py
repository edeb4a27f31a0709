"""Fixture that runs a test on every row of the table."""

from collections.abc import Iterator

import jax
import pytest

from tests.table import TABLE, Row

#: Compositions of other rows, which take as long as all other rows together.
COMBINED = ("noise_adam_sphere",)
ROWS = [
    pytest.param(row, marks=[pytest.mark.slow] if row.name in COMBINED else []) for row in TABLE
]


@pytest.fixture(params=ROWS, ids=[row.name for row in TABLE])
def row(request: pytest.FixtureRequest) -> Iterator[Row]:
    """One transform, under strict promotion unless optax's part of the transform needs another."""
    row: Row = request.param
    if row.promotion == "strict":
        yield row
    else:
        with jax.numpy_dtype_promotion(row.promotion):
            yield row
