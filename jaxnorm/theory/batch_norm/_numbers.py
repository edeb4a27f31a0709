"""What these functions take: real numbers and arrays of them."""

from typing import TypeVar

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Real

#: A number, or an array that broadcasts with the others.
Numbers = Real[ArrayLike, "..."]
Values = Float[Array, "..."]

_T = TypeVar("_T")


def as_values(*numbers: Numbers) -> list[Values]:
    """The numbers as arrays of one floating type: theirs, or JAX's default one for integers."""
    floating = [x for x in numbers if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    dtype = jnp.result_type(float, *floating)
    return [jnp.asarray(number, dtype) for number in numbers]


def of_kind(kind: str, choices: dict[str, _T]) -> _T:
    """The choice of a kind; raises ValueError, with the kinds there are, for another."""
    if kind not in choices:
        raise ValueError(f"got the kind {kind!r}; wanted one of {', '.join(sorted(choices))}.")
    return choices[kind]
