"""The guides: all blocks of each run in order in a user's process, and the names in them exist."""

import ast
import re
import subprocess
from functools import reduce
from pathlib import Path

import pytest

import jaxnorm
from tests.programs import ROOT, output_of

DOCS = ROOT / "docs"
PAGES = [DOCS / "concepts.md", DOCS / "quickstart.md", *sorted((DOCS / "guides").glob("*.md"))]
GUIDES = [page for page in PAGES if "```python" in page.read_text()]
#: The user's function, and optax's that the text calls by their short names.
OUTSIDE = ("apply", "sam", "schedule_free")
#: The line of guides that run on eight devices.
DEVICES = 'jax.config.update("jax_num_cpu_devices", 8)'


def blocks(path: Path, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def syntax_errors(script: str) -> str:
    """Messages of bash, which parses the script and does not run it."""
    command = ["bash", "-n"]
    process = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    return process.stderr


@pytest.mark.slow  # processes that compile everything
@pytest.mark.parametrize("devices", [1, 8])
def test_they_run(devices: int) -> None:
    codes = {path.stem: "\n".join(blocks(path)) for path in GUIDES}
    codes = {name: code for name, code in codes.items() if (DEVICES in code) == (devices == 8)}
    assert codes
    output_of(codes)


def dotted(node: ast.AST) -> str:
    """Source of a chain of names such as `jn.nnx.layout`; empty for other nodes."""
    text = ast.unparse(node)
    return text if re.fullmatch(r"jn(\.\w+)+", text) else ""


def test_a_wrong_script_has_syntax_errors() -> None:
    assert blocks(DOCS / "guides" / "clusters.md", "bash")
    assert syntax_errors('srun "python')


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
class TestGuide:
    def test_names_in_its_blocks_exist(self, path: Path) -> None:
        nodes = ast.walk(ast.parse("\n".join(blocks(path))))
        names = {dotted(node) for node in nodes if isinstance(node, ast.Attribute)} - {""}
        assert names
        for name in names:
            reduce(getattr, name.split(".")[1:], jaxnorm)

    def test_calls_in_its_text_and_tables_exist(self, path: Path) -> None:
        """Calls in `backticks` without a module."""
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        called = set(re.findall(r"`([a-z_]+)\(", text))
        assert called <= {*jaxnorm.__all__, *jaxnorm.nnx.__all__, *OUTSIDE}

    def test_its_blocks_assert(self, path: Path) -> None:
        assert sum(block.count("assert ") for block in blocks(path)) >= 3

    def test_its_shell_blocks_parse(self, path: Path) -> None:
        for block in blocks(path, "bash"):
            assert not syntax_errors(block)
