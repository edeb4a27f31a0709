"""Checks of numbers that users pass: real, finite and in range, of any scalar type.

Traced numbers have no value yet and pass, and so do arrays of several processes, of which each
process holds a part.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Range(NamedTuple):
    """Set of finite numbers.

    Attributes:
        words: the set in the words of a message.
        contains: True for each number of an array that is in it.
    """

    words: str
    contains: Callable[[np.ndarray], Any]


FINITE = Range("a finite number", np.isfinite)
POSITIVE = Range("a positive number", lambda x: x > 0)
NONNEGATIVE = Range("a number of at least 0", lambda x: x >= 0)
FRACTION = Range("a number from 0 to 1", lambda x: (x >= 0) & (x <= 1))
INSIDE_UNIT = Range("a number between 0 and 1", lambda x: (x > 0) & (x < 1))


def check_number(value: Any, expected: Range, name: str, advice: str, place: str = "") -> None:
    """Raises for a number, or an array of numbers, outside of a range.

    Args:
        value: a number of any scalar type, or an array, whose elements are checked one by one.
        expected: the range.
        name: the argument's name in the message.
        advice: an example, or how to mend the value.
        place: the parameter that the value is for, in the words of a message.

    Raises:
        TypeError: for a value that is no real number.
        ValueError: for a number out of range.
    """
    where = f" for {place}" if place else ""
    if not is_real(value):
        raise TypeError(f"{name} is {value!r}{where}; wanted {expected.words}, {advice}.")
    known = known_values(value)
    if known is None:
        return
    outside = known[~(expected.contains(known) & np.isfinite(known))]
    if outside.size:
        among = " in an array" if known.ndim else ""
        bad = outside.tolist()[0]
        raise ValueError(f"{name} is {bad}{among}{where}; wanted {expected.words}, {advice}.")


def check_optimizer(optimizer: Any) -> None:
    """Raises TypeError for an object that is no optax transformation."""
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return
    name = getattr(optimizer, "__name__", None)
    shown = f"the function {name}" if name else f"a {type(optimizer).__name__}"
    advice = f"call it: {name}(1e-3)" if name else "pass parameters first, then the optimizer"
    raise TypeError(
        f"the optimizer is {shown}; wanted an optax transformation with init and update, such as "
        f"optax.adam(1e-3): {advice}."
    )


def check_function(function: Any, name: str, example: str) -> None:
    """Raises TypeError for an argument that is no function; ``example`` says how it is called."""
    if not callable(function):
        raise TypeError(
            f"{name} is of type {type(function).__name__!r}; wanted a function, {example}: "
            "look at the order of the arguments."
        )


def check_patterns(patterns: Any, name: str) -> None:
    """Raises TypeError for one regular expression in the place of several: its letters match."""
    if isinstance(patterns, str):
        raise TypeError(
            f"{name} is the string {patterns!r}, each letter of which would count as an "
            f"expression; wanted a list of regular expressions: {name}=[{patterns!r}]."
        )


def check_params(params: Any, name: str) -> None:
    """Raises ValueError for an update without parameters, which it is relative to."""
    if params is None:
        raise ValueError(f"{name} got no params; call update(gradients, state, params).")


def check_no_functions(extra: dict[str, Any], name: str) -> None:
    """Raises ValueError for functions of the parameters, which are in other coordinates inside."""
    functions = sorted(key for key, value in extra.items() if callable(value))
    if functions:
        raise ValueError(
            f"update got the functions {functions}, which the optimizer inside {name} would call "
            "with parameters in other coordinates. Line searches, and SAM in its opaque mode, do "
            "not go with it: use them where the parameters themselves are trained, by "
            "normalizer_free(..., centered=False) for example."
        )


def warn(text: str) -> None:
    """Warns from the library's own line, so that Python's filter shows each text once."""
    warnings.warn(text, UserWarning, stacklevel=2)


def check_seed(seed: Any) -> None:
    """Raises ValueError for a seed that does not fit into 32 bits; traced seeds pass."""
    if isinstance(seed, jax.core.Tracer):
        return
    known = np.asarray(seed)
    if known.ndim or known.dtype.kind not in "iu" or not 0 <= int(known) < 2**32:
        raise ValueError(
            f"seed is {seed!r}; wanted an integer from 0 to {2**32 - 1}: seed % 2**32 makes one of "
            "a larger integer."
        )


def is_real(value: Any) -> bool:
    """Returns True for a real number or an array of them, known or traced, but not for bools."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def known_values(value: Any) -> np.ndarray | None:
    """Returns the numbers as a NumPy array; None if they are traced, shapes, or elsewhere."""
    if isinstance(value, (jax.core.Tracer, jax.ShapeDtypeStruct)):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    # NumPy does not compare JAX's own types, such as bfloat16, with infinity.
    known = np.asarray(value)
    return known if known.dtype.kind in "iuf" else known.astype(np.float64)


def all_zero(values: Any) -> bool:
    """Returns True if the numbers are known and all zero; False for an empty array."""
    known = known_values(values)
    return known is not None and known.size > 0 and not known.any()
