"""Settings per layer: a number for all leaves, or a tree of numbers that is a prefix of theirs."""

from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._paths import entries, leaves

#: A number, None, or a pytree prefix of them.
Setting = Any


def setting_per_leaf(setting: Setting, tree: PyTree, name: str) -> list[Any]:
    """The setting of each leaf of ``tree`` (nodes opened, absent leaves included).

    ``setting`` is matched by path, not by structure, so that it stays right where a mask has
    replaced or left out a part of ``tree``. Raises ValueError, with the path, for a leaf that has
    no setting.
    """
    given = dict(entries(setting))
    return [_setting_at(path, given, name) for path, _ in leaves(tree)]


def _setting_at(path: str, given: dict[str, Any], name: str) -> Any:
    """The setting that reaches a leaf: that of the longest prefix of its path."""
    parts = path.split("/")
    for length in range(len(parts), -1, -1):
        prefix = "/".join(parts[:length])
        if prefix in given:
            return given[prefix]
    raise ValueError(
        f"{name} has no entry for the parameter {path!r}; it has entries for "
        f"{', '.join(given) or 'nothing'}. Wanted one number (or None) for all parameters, or a "
        "tree of them that reaches every leaf, as a pytree prefix does."
    )


def is_number(setting: Any) -> bool:
    """Whether a setting is a Python number, known before tracing."""
    return isinstance(setting, (int, float)) and not isinstance(setting, (bool, jax.Array))
