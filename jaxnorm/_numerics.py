"""Arithmetic that stays finite: the type of sums, division and roots at zero, rounding floors.

At zero the value and the gradient of a quotient or a root are finite only if the zero is replaced
before the division or the root: the branch that ``jnp.where`` does not take has a gradient too.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

Values = Float[Array, "..."]
Numbers = Num[Array, "..."]

#: Values whose deviations are at most this many rounding errors of their mean count as equal.
ROUNDING_ERRORS = 8


def wide_dtype(*dtypes: Any) -> Any:
    """Returns float32, or float64 if one of the types is wider than 32 bits."""
    return jnp.float64 if max(jnp.finfo(dtype).bits for dtype in dtypes) > 32 else jnp.float32


def scale_dtype(dtype: Any) -> Any:
    """Returns the type itself, or bfloat16 if it has 8 bits or fewer, whose range is small."""
    return dtype if jnp.finfo(dtype).bits > 8 else jnp.bfloat16


def check_real(*arrays: Any, name: str = "an array") -> None:
    """Raises TypeError for arrays that are not real floating-point numbers."""
    for x in arrays:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(
                f"{name} has numbers of type {x.dtype}; wanted a real floating-point type. Convert "
                "it, with astype(jnp.float32) for example (store the real and the imaginary part "
                "of a complex parameter as two), or leave it out: of a layout with exclude, of an "
                "optimizer with optax.masked."
            )


def promote(array: Values, *others: Values) -> Values:
    """Casts ``array`` to float32, or to float64 if it or one of ``others`` is float64.

    Raises TypeError for arrays that are not real floating-point numbers.
    """
    check_real(array, *others)
    return array.astype(wide_dtype(*(x.dtype for x in (array, *others))))


def multiplied(x: Values, factor: Values) -> Values:
    """Product in float32 or wider, in the type of ``x``, which need not hold the factor."""
    return (promote(x, factor) * promote(factor, x)).astype(x.dtype)


def added(x: Values, offset: Values) -> Values:
    """Sum with as many numbers in any shape, in float32 or wider, in the type of ``x``."""
    return (promote(x, offset) + promote(offset, x).reshape(x.shape)).astype(x.dtype)


def nonzero(x: Numbers, zero: Bool[Array, "..."] | None = None) -> Numbers:
    """Replaces zeros by 1, so that a divisor or a radicand gives nothing infinite.

    Args:
        x: the numbers.
        zero: the places that count as zero; by default those where ``x`` is 0.
    """
    return jnp.where(x == 0 if zero is None else zero, 1, x)


def quotient(x: Numbers, y: Numbers) -> Values:
    """Divides x by y; 0 with gradient 0 if y is 0."""
    return jnp.where(y == 0, 0, x / nonzero(y))


def root(x: Numbers) -> Values:
    """Square root, with gradient 0 at 0."""
    return jnp.where(x == 0, 0, jnp.sqrt(nonzero(x)))


def norm_of_squares(squares: Values, zero: Bool[Array, "..."]) -> Values:
    """Root of sums of squares: 1 at the places ``zero``, NaN where the squares overflowed."""
    norm = jnp.sqrt(nonzero(squares, zero))
    return jnp.where(norm < jnp.inf, norm, jnp.nan)


def product(left: Values, right: Values) -> Values:
    """Matrix product in the full precision of its type, not in the default of TPUs and GPUs."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def rounding_floor(mean: Values, errors: int = ROUNDING_ERRORS, count: Any = 1) -> Values:
    """Squared deviation at or below which all values are equal up to rounding.

    Args:
        mean: the mean of the values.
        errors: the number of rounding errors of the mean that a deviation may have.
        count: the number of values whose squared deviations are summed; 1 for their mean.
    """
    tiny, eps = jnp.finfo(mean.dtype).tiny, float(jnp.finfo(mean.dtype).eps)
    return jnp.add(jnp.asarray(tiny, mean.dtype), count * jnp.square(errors * eps * mean))
