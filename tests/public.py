"""The public modules of jaxnorm and the names that each of them offers."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxnorm

ROOT = Path(jaxnorm.__file__).parent


def is_public(path: Path) -> bool:
    """True if no folder and no file on the way to the module is private."""
    parts = path.with_suffix("").relative_to(ROOT).parts
    return not any(part.startswith("_") and part != "__init__" for part in parts)


def module_name(path: Path) -> str:
    parts = path.with_suffix("").relative_to(ROOT.parent).parts
    return ".".join(part for part in parts if part != "__init__")


#: Path of each public module by its dotted name.
PATHS = {module_name(path): path for path in sorted(ROOT.rglob("*.py")) if is_public(path)}


def names_of(module: ModuleType) -> dict[str, Any]:
    """The functions, classes and types that the module offers by its dotted names."""
    values = {name: getattr(module, name) for name in module.__all__}
    return {
        f"{module.__name__}.{name}": value
        for name, value in values.items()
        if not isinstance(value, ModuleType)
    }


#: Value of each public name, such as `jaxnorm.theory.vcl.mixture_kurtosis`.
NAMES = {name: value for path in PATHS for name, value in names_of(import_module(path)).items()}
