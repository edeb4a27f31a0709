"""The guides: every block runs, top to bottom, in a user's process, and what they name exists."""

import ast
import os
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path

import pytest

import jaxnorm

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
#: The user's own function, and optax's that the text calls by their short names.
OTHERS = ("apply", "sam", "schedule_free")


def blocks(path: Path, language: str = "python") -> list[str]:
    found = rf"^```{language}\n(.*?)^```"
    return re.findall(found, path.read_text(), re.DOTALL | re.MULTILINE)


def parses(script: str) -> str:
    """What bash has against a script, which is not run."""
    command = ["bash", "-n"]
    ran = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    return ran.stderr


def dotted(node: ast.AST) -> str:
    """`jn.nnx.layout` of its syntax tree; empty for what is no chain of names."""
    text = ast.unparse(node)
    return text if re.fullmatch(r"jn(\.\w+)+", text) else ""


def test_what_bash_refuses_is_seen() -> None:
    assert blocks(ROOT / "docs" / "guides" / "clusters.md", "bash")
    assert parses('srun "python')


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
class TestGuide:
    def test_what_it_takes_of_the_library_exists(self, path: Path) -> None:
        nodes = ast.walk(ast.parse("\n".join(blocks(path))))
        names = {dotted(node) for node in nodes if isinstance(node, ast.Attribute)} - {""}
        assert names
        for name in names:
            reduce(getattr, name.split(".")[1:], jaxnorm)

    def test_what_its_text_and_tables_name_exists(self, path: Path) -> None:
        """Calls in `backticks`, where no module is named in front."""
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        called = set(re.findall(r"`([a-z_]+)\(", text))
        assert called <= {*jaxnorm.__all__, *jaxnorm.nnx.__all__, *OTHERS}

    def test_it_asserts_what_it_says(self, path: Path) -> None:
        assert sum(block.count("assert ") for block in blocks(path)) >= 3

    @pytest.mark.slow  # a process that compiles everything
    def test_it_runs(self, path: Path) -> None:
        code = "\n".join(blocks(path))
        command = [sys.executable, "-W", "error", "-c", code]
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert ran.returncode == 0, ran.stderr

    def test_its_shell_blocks_parse(self, path: Path) -> None:
        for block in blocks(path, "bash"):
            assert not parses(block)
