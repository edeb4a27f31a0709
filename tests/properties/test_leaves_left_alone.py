"""A transform changes the leaves of its row in the table, and no other leaf."""

import numpy as np

from tests.table import Row, example_gradients, example_params
from tests.trees import by_path, run


def test_only_the_leaves_of_the_row_change(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    expected = by_path(run(row.base, params, gradients)[0])
    actual = by_path(run(row.tx, params, gradients)[0])
    for path, leaf in actual.items():
        differs = not np.array_equal(leaf, expected[path])
        assert differs == row.changes(path), path
