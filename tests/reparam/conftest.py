"""Fixture that runs a test on every row of the table."""

import pytest

from tests.reparam.table import TABLE, Row


@pytest.fixture(params=TABLE, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    result: Row = request.param
    return result
