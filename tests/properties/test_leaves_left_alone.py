"""A transform changes the leaves that it is for, and no other."""

import numpy as np

from tests.table import Row, example_gradients, example_params
from tests.trees import by_path, run


def test_changes_its_own_leaves_and_no_other(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    wanted = by_path(run(row.base, params, gradients)[0])
    got = by_path(run(row.tx, params, gradients)[0])
    for path, leaf in got.items():
        differs = not np.array_equal(leaf, wanted[path])
        assert differs == row.changes(path), path
