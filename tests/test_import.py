"""The house rules that a reader of one file cannot see: imports, public names, and docstrings."""

import ast
import importlib
import inspect
import pydoc
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxnorm
from tests.public import NAMES, PATHS, ROOT

FILES = sorted(ROOT.rglob("*.py"))
#: The modules that offer public names.
PUBLIC = {
    "jaxnorm",
    *map("jaxnorm.{}".format, jaxnorm._PACKAGES),
    *(f"jaxnorm.theory.{paper}" for paper in ("batch_norm", "cwo", "lcw", "normprop", "vcl")),
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


#: Statements of one process, one after the other, and the modules that no statement so far loads.
FIRST_USES = {
    "import jaxnorm as jn": "jax optax numpy scipy flax jaxnorm.theory",
    "jn.constrain, jn.linearly_constrain, jn.sphere_projection, jn.effective": "jax.extend",
    "[getattr(jn, name) for name in jn.__all__ if name != 'nnx']": "numpy.polynomial scipy flax",
    "import jax; jn.normprop.gaussian_moments(abs); jn.shaping.shaped(jax.nn.tanh, 9)": "flax",
    "assert jn.nnx is sys.modules['jaxnorm.nnx']": "experiments equinox chex beartype diffrax",
}


@pytest.mark.slow
def test_what_is_slow_to_import_is_imported_when_it_is_used() -> None:
    """A fresh process loads Flax with `jaxnorm.nnx` alone, and SciPy with quadrature alone."""
    shown = "print([*sys.modules])"
    lines = ["import sys", *(f"{statement}; {shown}" for statement in FIRST_USES)]
    command = [sys.executable, "-c", "\n".join(lines)]
    process = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    loaded = [set(ast.literal_eval(line)) for line in process.stdout.splitlines()]
    absent = [set(names.split()) for names in FIRST_USES.values()]
    for number, modules in enumerate(loaded):
        assert not modules & set().union(*absent[number:])
    assert {"jax", "optax"} <= loaded[1]
    assert {"flax", "scipy.integrate", "scipy.optimize", "jaxnorm.theory"} <= loaded[-1]


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'jaxnorm' has no attribute 'nxn'"):
        jaxnorm.nxn  # noqa: B018


def test_each_public_name_is_imported_once_for_type_checkers_and_once_at_its_first_use() -> None:
    body = ast.parse(PATHS["jaxnorm"].read_text())
    statements = [node for node in ast.walk(body) if isinstance(node, ast.ImportFrom)]
    static = {alias.name: node.module for node in statements for alias in node.names}
    assert all(getattr(jaxnorm, name) is not None for name in static)
    private = {name: module for name, module in static.items() if module != "jaxnorm"}
    assert {name: f"jaxnorm.{module}" for name, module in jaxnorm._MODULES.items()} == private


def test_public_names_have_one_module_each() -> None:
    assert PATHS.keys() == PUBLIC
    names = [name.rpartition(".") for name in NAMES]
    count = Counter(name for module, _, name in names if module in PUBLIC)
    assert not [name for name, modules in count.items() if modules > 1]


@pytest.mark.parametrize("module", PATHS)
def test_all_lists_the_functions_of_a_file_or_its_imports_if_it_has_none(module: str) -> None:
    listed, path = importlib.import_module(module).__all__, PATHS[module]
    body = ast.parse(path.read_text())
    definitions = (ast.FunctionDef, ast.ClassDef)
    offered = {node.name for node in body.body if isinstance(node, definitions)}
    offered = {name for name in offered if not name.startswith("_")}
    if not offered:
        statements = [node for node in ast.walk(body) if isinstance(node, ast.ImportFrom)]
        ours = [node for node in statements if str(node.module).startswith("jaxnorm")]
        offered = {alias.name for node in ours for alias in node.names}
    # The import hook of the tests adds a module.
    assert {*listed} - {"jaxtyping"} == offered
    assert sorted(listed, key=str.lower) == sorted(set(listed), key=str.lower)


def test_dir_and_help_show_only_the_public_names() -> None:
    shown = [name for name in dir(jaxnorm) if not name.startswith("__")]
    assert sorted(shown) == sorted(jaxnorm.__all__)
    assert {"constrain", "effective", "nnx", "metrics"} <= set(shown)
    text = pydoc.plain(pydoc.render_doc(jaxnorm))
    assert not [name for name in jaxnorm.__all__ if name not in text]


def imports(path: Path) -> Iterator[str]:
    """Yields the full name of each import that runs."""
    for node in executed(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes outside the blocks that only a type checker reads."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "_typing.TYPE_CHECKING":
            for statement in child.orelse:
                yield from executed(statement)
        else:
            yield from executed(child)


def attributes(path: Path) -> Iterator[str]:
    """Yields each dotted name in a file, such as `jax.numpy.ones`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_file_uses_the_experiments_or_private_names_of_libraries(path: Path) -> None:
    names = list(imports(path))
    libraries = [name for name in names if not name.startswith("jaxnorm")]
    assert not [name for name in libraries if any(part.startswith("_") for part in name.split("."))]
    assert not [name for name in names if name.split(".")[0] in ("experiments", "tests")]
    packages = ("jax.", "jnp.", "optax.", "nnx.", "flax.")
    dotted = [name for name in attributes(path) if name.startswith(packages)]
    assert not [name for name in dotted if any(part.startswith("_") for part in name.split("."))]


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_only_the_folder_nnx_uses_flax(path: Path) -> None:
    if path.parent != ROOT / "nnx":
        assert not [name for name in imports(path) if name.split(".")[0] == "flax"]
        assert not [name for name in imports(path) if name.startswith("jaxnorm.nnx")]


#: Public functions and classes; `Layout` is a type.
DOCUMENTED = {
    name: value
    for name, value in NAMES.items()
    if callable(value) and value.__module__.startswith("jaxnorm")
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_names_are_documented(name: str) -> None:
    """Functions show an example or their source; records describe their attributes."""
    value = DOCUMENTED[name]
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, tuple):
        assert "Attributes:" in text
    elif not inspect.isabstract(value):
        assert "Example:" in text or "Source:" in text


def test_the_lists_of_files_and_names_are_complete() -> None:
    assert {"jaxnorm.project", "jaxnorm.nnx.layout", "jaxnorm.Scaled"} <= DOCUMENTED.keys()
    assert {"_numerics.py", "theory/cwo.py", "nnx/__init__.py"} <= set(map(relative, FILES))
