"""A user's file that takes every public name passes a strict type checker."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.public import NAMES

ROOT = Path(__file__).parent.parent
USER = ROOT / "tests" / "typed" / "user.py"


def mypy(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    settings = f"--config-file={USER.parent / 'mypy.ini'}"
    command = [sys.executable, "-m", "mypy", settings, f"--cache-dir={cache}", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_takes_every_public_name() -> None:
    nodes = list(ast.walk(ast.parse(USER.read_text())))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert not {name.rpartition(".")[2] for name in NAMES} - read


@pytest.mark.slow  # mypy reads the types of JAX and Flax
def test_a_type_checker_accepts_it_and_refuses_a_wrong_use(tmp_path: Path) -> None:
    accepted = mypy(USER, tmp_path / "cache")
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import jaxnorm as jn\n\njn.exclude(1)\njn.nnx.layuot\n")
    refused = mypy(wrong, tmp_path / "cache")
    assert "[arg-type]" in refused.stdout
    assert 'has no attribute "layuot"' in refused.stdout
