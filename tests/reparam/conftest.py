"""The fixtures that run a test on every row of the table."""

import pytest

from tests.reparam.table import CENTERING, TABLE, Row


@pytest.fixture(params=TABLE, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    result: Row = request.param
    return result


@pytest.fixture(params=CENTERING, ids=lambda row: row.name)
def centering(request: pytest.FixtureRequest) -> Row:
    result: Row = request.param
    return result
