"""Tests, and `check`, with which setup.cfg executes every annotation."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

#: An int counts as a float, as for every type checker.
_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))

#: Wrapped inner functions, which are defined again by every call of the outer one.
_inner: dict[Any, Any] = {}


def check(function: Any) -> Any:
    """Wraps a function with beartype; an inner function once, not at each of its definitions.

    Jaxtyping passes functions that consist of their annotations, so that equal annotations can
    share one wrapper. Functions with defaults cannot, because defaults differ per definition.
    Outer functions without an array are not checked after collection (conftest.py), so not wrapped.
    """
    if not _is_inner(function):
        return _beartype(function) if _is_checked(function) else function
    annotations = tuple(function.__annotations__.items())
    key = (function.__module__, function.__qualname__, function.__code__, annotations)
    try:
        return _inner[key]
    except KeyError:
        return _inner.setdefault(key, _beartype(function))
    except TypeError:  # an annotation without a hash
        return _beartype(function)


def _is_checked(function: Callable[..., Any]) -> bool:
    fields_of_a_record = getattr(function, "__name__", "") == "__init__"
    return fields_of_a_record or names_an_array(function)


def names_an_array(function: Any) -> bool:
    """Tells functions with an array of JAX or NumPy in their annotations."""
    return "array" in str(getattr(function, "__annotations__", "")).lower()


def _is_inner(function: Callable[..., Any]) -> bool:
    defaults = getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)
    return "<locals>" in getattr(function, "__qualname__", "") and not any(defaults)
