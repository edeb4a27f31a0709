"""The names in the tables of other files, read off their source without importing them.

So ``methods`` lists at once, and a misspelt name is refused before JAX is imported. A test holds
each list equal to the table.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@cache
def _assigned(file: Path) -> dict[str, ast.expr]:
    """Returns the expressions that a file assigns to names at its top level."""
    found: dict[str, ast.expr] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            if isinstance(target, ast.Name) and (value := getattr(node, "value", None)):
                found[target.id] = value
    return found


def _text(file: Path, node: ast.expr | None) -> str:
    """Returns the text of a constant, or of the name of one in the same file."""
    if isinstance(node, ast.Name):
        node = _assigned(file)[node.id]
    assert isinstance(node, ast.Constant), f"{file}: no constant text"
    return str(node.value)


def text_of(file: Path, name: str) -> str:
    """Returns the text that a file assigns to a name."""
    return _text(file, ast.Name(name))


def keys_of(file: Path, name: str) -> tuple[str, ...]:
    """Returns the keys of a dict that a file assigns to a name."""
    table = _assigned(file)[name]
    assert isinstance(table, ast.Dict), f"{file}: {name} is no dict"
    return tuple(_text(file, key) for key in table.keys)


def methods() -> dict[str, str]:
    """Returns the summaries of the methods by name, as `methods/table.py` has them."""
    file = FOLDER / "methods" / "table.py"
    rows = (row for row in ast.walk(_assigned(file)["_ALL"]) if _calls(row, "Method"))
    return {_text(file, row.args[0]): _text(file, row.args[1]) for row in rows}  # type: ignore[attr-defined]


def paper_items() -> tuple[str, ...]:
    """Returns the names of the papers' items: PAPER/ITEM as an argument of a call."""
    return tuple(dict.fromkeys(_items()))


def _items() -> Iterator[str]:
    for file in sorted((FOLDER / "papers").glob("*/*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call):
                named = [each.value for each in call.keywords if each.arg == "name"]
                for each in [*call.args[:1], *named]:
                    text = each.value if isinstance(each, ast.Constant) else ""
                    if re.fullmatch(rf"{file.parent.name}/\w+", str(text)):
                        yield str(text)


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def models() -> tuple[str, ...]:
    """Returns the names of the networks."""
    return keys_of(FOLDER / "models" / "registry.py", "MODELS")


def activations() -> tuple[str, ...]:
    """Returns the names of the activations."""
    return keys_of(FOLDER / "models" / "style.py", "ACTIVATIONS")


def augmentations() -> tuple[str, ...]:
    """Returns the names of the augmentations."""
    return keys_of(FOLDER / "augmentation" / "table.py", "AUGMENTATIONS")


def benchmarks() -> tuple[str, ...]:
    """Returns the names of the benchmarks that have the flags of ``bench``."""
    return keys_of(FOLDER / "bench" / "registry.py", "BENCHMARKS")


def version() -> str:
    """Returns the version of jaxnorm."""
    found = importlib.util.find_spec("jaxnorm")
    assert found is not None, "jaxnorm is not installed"
    assert found.origin is not None, "jaxnorm is no package"
    return text_of(Path(found.origin), "__version__")


#: The methods of a comparison by default.
DEFAULT_METHODS = text_of(FOLDER / "methods" / "table.py", "DEFAULT_METHODS")
