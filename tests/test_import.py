"""The house rules that a reader of one file cannot see: imports, sizes, and documentation."""

import ast
import inspect
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jaxnorm
import jaxnorm.nnx

ROOT = Path(jaxnorm.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LONGEST = 250
PAPERS = (
    jaxnorm.theory.batch_norm,
    jaxnorm.theory.cwo,
    jaxnorm.theory.lcw,
    jaxnorm.theory.normprop,
    jaxnorm.theory.vcl,
)
LIBRARIES = (
    *(jaxnorm, jaxnorm.initializers, jaxnorm.nnx, jaxnorm.reparam, jaxnorm.transforms),
    *PAPERS,
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_importing_jaxnorm_imports_no_flax() -> None:
    """In a process of its own: this one has flax already."""
    code = "import sys, jaxnorm; print(sorted({name.split('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    modules = ast.literal_eval(ran.stdout)
    assert {"jaxnorm", "jax", "optax"} <= set(modules)
    assert not {"flax", "experiments", "equinox", "chex", "beartype", "diffrax"} & set(modules)


def imports(path: Path) -> Iterator[str]:
    """Every name that a file imports, in full."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def attributes(path: Path) -> Iterator[str]:
    """Every dotted name that a file reads, such as `jax.numpy.ones`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_private_of_others_and_no_experiments(path: Path) -> None:
    names = list(imports(path))
    others = [name for name in names if not name.startswith("jaxnorm")]
    assert not [name for name in others if any(part.startswith("_") for part in name.split("."))]
    assert not [name for name in names if name.split(".")[0] in ("experiments", "tests")]
    packages = ("jax.", "jnp.", "optax.", "nnx.", "flax.")
    read = [name for name in attributes(path) if name.startswith(packages)]
    assert not [name for name in read if any(part.startswith("_") for part in name.split("."))]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_flax_is_used_in_its_own_room_alone(path: Path) -> None:
    if path.parent != ROOT / "nnx":
        assert not [name for name in imports(path) if name.split(".")[0] == "flax"]
        assert not [name for name in imports(path) if name.startswith("jaxnorm.nnx")]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def public() -> list[tuple[str, Any]]:
    names = itertools.chain.from_iterable(
        ((f"{library.__name__}.{name}", value) for name, value in vars(library).items())
        for library in LIBRARIES
    )
    is_ours = lambda x: getattr(x, "__module__", "").startswith("jaxnorm")  # noqa: E731
    return [
        (name, value)
        for name, value in names
        if not name.rsplit(".", 1)[-1].startswith("_") and callable(value) and is_ours(value)
    ]


@pytest.mark.parametrize(("name", "value"), public(), ids=[name for name, _ in public()])
def test_public_names_are_documented(name: str, value: Any) -> None:
    """What computes shows an example or its source; what only holds results says what it holds."""
    text = inspect.getdoc(value) or ""
    holds_results = inspect.isclass(value) and issubclass(value, tuple)
    if holds_results:
        assert "Attributes:" in text, name
    elif not inspect.isabstract(value):
        assert "Example:" in text or "Source:" in text, name


def test_the_public_names_are_found() -> None:
    """The two lists above are not empty by accident."""
    assert {"jaxnorm.project", "jaxnorm.nnx.layout", "jaxnorm.Scaled"} <= dict(public()).keys()
    assert {ROOT / "_unit.py", ROOT / "nnx" / "_layout.py"} <= set(FILES)
