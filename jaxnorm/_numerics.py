"""Numbers that stay right: the type of sums, division and roots at zero, values that are all equal.

The value and the gradient of a quotient or a root at zero are finite only if the zero is replaced
before it is divided by, or the root is taken: the branch that is not taken has a gradient too.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

Values = Float[Array, "..."]
Numbers = Num[Array, "..."]

#: Values whose deviations are this many rounding errors of their mean, or less, count as equal.
ROUNDING_ERRORS = 8


def wide_dtype(*dtypes: Any) -> Any:
    """float32, or float64 if one of the types is wider."""
    return jnp.float64 if max(jnp.finfo(dtype).bits for dtype in dtypes) > 32 else jnp.float32


def promote(array: Values, *others: Values) -> Values:
    """``array`` in float32, or in the widest type of it and ``others`` if that is wider.

    Raises TypeError for arrays that are not real floating-point numbers.
    """
    for x in (array, *others):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(
                f"got numbers of type {x.dtype}; wanted a real floating-point type. Convert them, "
                "with astype(jnp.float32) for example; leave such parameters out with the layout "
                "(None), or with optax.masked."
            )
    return array.astype(wide_dtype(*(x.dtype for x in (array, *others))))


def nonzero(x: Numbers, zero: Bool[Array, "..."] | None = None) -> Numbers:
    """``x`` with 1 where it is zero: a divisor or a radicand that gives nothing infinite.

    Args:
        x: the numbers.
        zero: what counts as zero; by default what is.
    """
    return jnp.where(x == 0 if zero is None else zero, 1, x)


def quotient(x: Numbers, y: Numbers) -> Values:
    """X / y, and 0 with gradient 0 where y is 0."""
    return jnp.where(y == 0, 0, x / nonzero(y))


def root(x: Numbers) -> Values:
    """The square root, with gradient 0 at 0."""
    return jnp.where(x == 0, 0, jnp.sqrt(nonzero(x)))


def product(left: Values, right: Values) -> Values:
    """Of matrices, in the full precision of their type, not the default of TPUs and GPUs."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def rounding_floor(mean: Values, errors: int = ROUNDING_ERRORS, count: int = 1) -> Values:
    """The squared deviation at or below which all values are equal up to rounding.

    Args:
        mean: of the values.
        errors: the rounding errors of the mean that a deviation may have.
        count: the number of values whose squared deviations are summed; 1 for their mean.
    """
    tiny, eps = jnp.finfo(mean.dtype).tiny, float(jnp.finfo(mean.dtype).eps)
    return jnp.asarray(tiny, mean.dtype) + count * jnp.square(errors * eps * mean)
