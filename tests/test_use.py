"""Each public name has a caller in an experiment, an example, a notebook or a guide."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.public import NAMES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def programs() -> Iterator[str]:
    """Each module, and the blocks of each page and notebook as one program."""
    for folder in ("experiments", "examples"):
        yield from (path.read_text() for path in sorted((ROOT / folder).rglob("*.py")))
    for page in PAGES:
        yield "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        code = "\n".join("".join(x["source"]) for x in cells if x["cell_type"] == "code")
        yield re.sub(r"^%.*$", "", code, flags=re.M)


def calls(program: str) -> set[str]:
    """Returns the dotted names of the library that a program imports or writes."""
    tree, modules, found = ast.parse(program), dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {x.asname or x.name: x.name for x in node.names}
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {x.asname or x.name: f"{node.module}.{x.name}" for x in node.names}
            modules |= names
            found |= set(names.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"[\w.]+", text := ast.unparse(node)):
            root, _, rest = text.partition(".")
            found.add(f"{modules.get(root, root)}.{rest}")
    return {name for name in found if name.startswith("jaxnorm.")}


def is_record(value: object) -> bool:
    """True for what functions return: whoever calls them uses it."""
    return isinstance(value, type) and issubclass(value, tuple)


@pytest.fixture(scope="module")
def called() -> set[str]:
    return set().union(*map(calls, programs()))


@pytest.mark.slow
def test_each_public_name_has_a_caller(called: set[str]) -> None:
    assert len(called) > 50
    unused = {name for name, value in NAMES.items() if not is_record(value)} - called
    assert not unused, f"nothing calls {sorted(unused)}: show them at work, or take them out."


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import jaxnorm as jn\njn.center(x)\njn.nnx.layout", "jaxnorm.center jaxnorm.nnx.layout"),
        ("from jaxnorm.theory import lcw\nlcw.variance_gain(f).real", "jaxnorm.theory.lcw"),
        ("from jaxnorm import nnx as n\nn.layout(m)", "jaxnorm.nnx jaxnorm.nnx.layout"),
        ("import numpy as jn\njn.center(x)  # jaxnorm.center", ""),
    ],
)
def test_callers_are_found_by_what_they_import(program: str, expected: str) -> None:
    assert set(expected.split()) <= calls(program)
    assert expected or not calls(program)
