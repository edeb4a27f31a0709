"""Numbers that users give: real, finite and in range, whatever scalar type they come in.

What is traced has no value yet and is not looked at; nor is an array of several processes, of which
each sees a part.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Range(NamedTuple):
    """Finite numbers between two ends.

    Attributes:
        words: the range as a message says it.
        low: the lower end.
        high: the upper end.
        with_low: whether the lower end belongs to it.
        with_high: whether the upper end does.
    """

    words: str
    low: float = -np.inf
    high: float = np.inf
    with_low: bool = True
    with_high: bool = True

    def holds(self, values: np.ndarray) -> bool:
        """Whether all values are in it; NaN and infinity never are."""
        above = values >= self.low if self.with_low else values > self.low
        below = values <= self.high if self.with_high else values < self.high
        return bool((above & below & np.isfinite(values)).all())


FINITE = Range("a finite number")
POSITIVE = Range("a positive number", 0, with_low=False)
NONNEGATIVE = Range("a number of at least 0", 0)
FRACTION = Range("a number from 0 to 1", 0, 1)
INSIDE_UNIT = Range("a number between 0 and 1", 0, 1, with_low=False, with_high=False)


def check_number(value: Any, wanted: Range, name: str, way_out: str) -> None:
    """Raises for a number, or an array of them, that is not in a range.

    Args:
        value: of any scalar type; the elements of an array count one by one.
        wanted: the range.
        name: of the argument, and what it is for: ``stddev for the parameter 'a/b'``.
        way_out: an example, or how to mend it.

    Raises:
        TypeError: for what is no real number.
        ValueError: for a number out of range.
    """
    argument, for_what, place = name.partition(" for ")
    if not is_real(value):
        raise TypeError(
            f"{argument} is {value!r}{for_what}{place}; wanted {wanted.words}, {way_out}."
        )
    known = known_values(value)
    if known is None or wanted.holds(known):
        return
    bad = next(number for number in known.ravel().tolist() if not wanted.holds(np.asarray(number)))
    among = " in an array" if known.ndim else ""
    raise ValueError(
        f"{argument} is {bad}{among}{for_what}{place}; wanted {wanted.words}, {way_out}."
    )


def check_seed(seed: Any) -> None:
    """Raises ValueError for a seed that 32 bits do not hold as it is; traced ones pass."""
    if isinstance(seed, jax.core.Tracer):
        return
    known = np.asarray(seed)
    if known.ndim or known.dtype.kind not in "iu" or not 0 <= int(known) < 2**32:
        raise ValueError(
            f"seed is {seed!r}; wanted an integer from 0 to {2**32 - 1}: seed % 2**32 makes one of "
            "a larger integer."
        )


def is_real(value: Any) -> bool:
    """Whether it is a real number or an array of them, known or traced; truth values are not."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def known_values(value: Any) -> np.ndarray | None:
    """The numbers in NumPy's form; None where they are traced or lie on other processes."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    # Types of JAX alone, such as bfloat16, NumPy does not compare with infinity.
    known = np.asarray(value)
    return known if known.dtype.kind in "iuf" else known.astype(np.float64)


def all_zero(values: Any) -> bool:
    """Whether numbers are known to be all zero; of an empty array they are not."""
    known = known_values(values)
    return known is not None and known.size > 0 and not known.any()
