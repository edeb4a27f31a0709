"""What the default run leaves out is there, and some of it stays."""

import ast
from pathlib import Path

import pytest

from tests.default_run import KEPT, OTHERS_ASK, is_left_out

HERE = Path(__file__).parent


@pytest.mark.parametrize("test", [*KEPT, *OTHERS_ASK])
def test_it_exists(test: str) -> None:
    file, name = test.split("::")
    tree = ast.parse((HERE / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_cases_are_kept_by_a_part_of_their_name() -> None:
    test = "test_collectives.py::test_under_jit"
    assert not is_left_out(test, "cwo")
    assert is_left_out(test, "normprop")
    assert is_left_out(OTHERS_ASK[0], None)
    assert not is_left_out("test_collectives.py::test_another", None)
