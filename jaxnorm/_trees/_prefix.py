"""Settings per layer: a number for all leaves, or a tree of numbers that is a prefix of theirs."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxnorm._checks import FINITE, NONNEGATIVE, POSITIVE, check_number
from jaxnorm._trees._paths import Path, entries, is_absent, leaves, listed

#: A number, None, or a pytree prefix of them.
Setting = Any

#: What the numbers of a setting may be; squared radii matter, and are checked, at kernels alone.
RANGES = {
    "stddev": NONNEGATIVE,
    "stddevs": NONNEGATIVE,
    "batch_size": POSITIVE,
    **dict.fromkeys(("means", "strengths", "excess_kurtosis"), FINITE),
}


def setting_per_leaf(setting: Setting, tree: PyTree, name: str) -> list[Any]:
    """The setting of each leaf of ``tree`` (nodes opened, absent leaves included).

    ``setting`` is matched by path, not by structure, so that it stays right where a mask has
    replaced or left out a part of ``tree``. Raises ValueError, with the path, for a leaf that has
    no setting, and for a number that the setting cannot be; TypeError for what is no number.
    """
    check_setting(setting, name)
    given = dict(entries(setting))
    return [_setting_at(path, given, name) for path, _ in leaves(tree)]


def check_setting(setting: Setting, name: str) -> None:
    """Raises for settings that are no numbers of their range.

    Arrays are not looked at where they are measured: what is broken in one shows in the result.
    """
    wanted, measured = RANGES.get(name), name != "stddev"
    for path, value in entries(setting):
        if wanted is not None and not is_absent(value) and not (measured and jnp.ndim(value)):
            of_path = f": mend that of {path!r}" if path else ""
            check_number(value, wanted, name, f"or a tree of them{of_path}")


def _setting_at(path: Path, given: dict[Path, Any], name: str) -> Any:
    """The setting that reaches a leaf: that of the longest prefix of its path."""
    for length in range(len(path), -1, -1):
        prefix = Path(path[:length])
        if prefix in given:
            return given[prefix]
    raise ValueError(
        f"{name} has no entry for the parameter {path!r}; it has entries for "
        f"{listed(given) or 'nothing'}. Wanted one number (or None) for all parameters, or a "
        "tree of them that reaches every leaf, as a pytree prefix does."
    )


def check_per_unit(value: Any, shape: tuple[int, ...], name: str) -> None:
    """Raises ValueError for an array of another shape, which would broadcast to more units."""
    if jnp.shape(value) not in ((), tuple(shape)):
        raise ValueError(
            f"{name} has the shape {jnp.shape(value)}; wanted {tuple(shape)}, one value for each "
            "unit of its layer, or a number."
        )


def is_number(setting: Any) -> bool:
    """Whether a setting is a Python number, known before tracing."""
    return isinstance(setting, (int, float)) and not isinstance(setting, (bool, jax.Array))
