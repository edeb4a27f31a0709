"""The tests, and `check`, by which setup.cfg has every annotation executed."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

#: An int is a float to it, as to every type checker.
_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))

#: The checks of functions inside functions, which are defined anew at every call.
_inner: dict[Any, Any] = {}


def check(function: Any) -> Any:
    """What beartype makes of a function: of an inner one once, and not at each of its definitions.

    Jaxtyping hands over stand-ins that consist of their annotations, so that those with the same
    ones are the same. Defaults are not: they are values of one definition.
    """
    if not _is_inner(function):
        return _beartype(function)
    annotations = tuple(function.__annotations__.items())
    key = (function.__module__, function.__qualname__, function.__code__, annotations)
    try:
        return _inner[key]
    except KeyError:
        return _inner.setdefault(key, _beartype(function))
    except TypeError:  # an annotation without a hash
        return _beartype(function)


def _is_inner(function: Callable[..., Any]) -> bool:
    defaults = getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)
    return "<locals>" in getattr(function, "__qualname__", "") and not any(defaults)
