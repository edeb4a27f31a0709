"""The fixture that runs a test on every row of the table."""

from collections.abc import Iterator

import jax
import pytest

from tests.table import TABLE, Row


@pytest.fixture(params=TABLE, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Iterator[Row]:
    """One transform; strict promotion stays on unless optax's own part of it needs the other."""
    row: Row = request.param
    if row.promotion == "strict":
        yield row
    else:
        with jax.numpy_dtype_promotion(row.promotion):
            yield row
