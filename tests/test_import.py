"""The house rules that a reader of one file cannot see: imports, sizes, and documentation."""

import ast
import importlib
import inspect
import itertools
import pydoc
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
#: The public packages, and the papers' modules, which have no files of their own underneath.
PACKAGES = sorted(
    {path.parent for path in FILES if path.name == "__init__.py" and path.parent.name[:1] != "_"}
    | set(ROOT.glob("theory/[a-z]*.py"))
)
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


def test_importing_jaxnorm_imports_no_flax_before_it_is_used() -> None:
    """In a process of its own, which has no Flax yet; and an unknown name stays an error."""
    code = """if True:
        import sys, jaxnorm as jn
        print(sorted({name.split('.')[0] for name in sys.modules}))
        assert jn.nnx is sys.modules["jaxnorm.nnx"]
        assert "flax" in sys.modules
        try:
            jn.nxn
        except AttributeError as error:
            print(error)"""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    modules, error = ran.stdout.splitlines()
    found = set(ast.literal_eval(modules))
    assert {"jaxnorm", "jax", "optax"} <= found
    assert not {"flax", "experiments", "equinox", "chex", "beartype", "diffrax"} & found
    assert error == "module 'jaxnorm' has no attribute 'nxn'"


@pytest.mark.parametrize("path", PACKAGES, ids=name_of)
def test_all_lists_what_a_package_offers(path: Path) -> None:
    """What a package imports, and of the papers' modules each function: help() shows `__all__`."""
    name = ".".join(path.with_suffix("").relative_to(ROOT.parent).parts)
    module = importlib.import_module(name)
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path).read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imported if str(node.module).startswith("jaxnorm")]
    offered = {alias.name for node in own for alias in node.names}
    if not path.is_dir():
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        offered = {name for name in functions if not name.startswith("_")}
    assert set(module.__all__) == offered
    assert sorted(module.__all__, key=str.lower) == sorted(set(module.__all__), key=str.lower)
    assert all(hasattr(module, name) for name in module.__all__)


def test_dir_and_help_show_the_public_names_alone() -> None:
    shown = [name for name in dir(jaxnorm) if not name.startswith("__")]
    assert sorted(shown) == sorted(jaxnorm.__all__)
    assert {"constrain", "effective", "nnx", "metrics"} <= set(shown)
    text = pydoc.plain(pydoc.render_doc(jaxnorm))
    assert not [name for name in jaxnorm.__all__ if name not in text]


def imports(path: Path) -> Iterator[str]:
    """Every name that a file imports when it runs, in full."""
    for node in running(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a file but those that a type checker alone reads: `if TYPE_CHECKING:`."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for statement in child.orelse:
                yield from running(statement)
        else:
            yield from running(child)


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
    if path == ROOT / "__init__.py":  # in its __getattr__, on demand
        assert [name for name in imports(path) if "nnx" in name] == ["jaxnorm.nnx"]
    elif path.parent != ROOT / "nnx":
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
    assert {ROOT / "_constraints" / "_unit.py", ROOT / "nnx" / "_layout.py"} <= set(FILES)
