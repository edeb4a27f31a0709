"""Variances of many small samples of any distribution."""

from collections.abc import Callable

from jaxtyping import Array, Float

from jaxnorm import sample_variance


def sample_variances(
    key: Array, draw: Callable[[Array, tuple[int, ...]], Array], n: int, repeats: int
) -> Float[Array, " repeats"]:
    """The unbiased variances of independent samples of size n; ``draw(key, shape)`` draws them."""
    return sample_variance(draw(key, (repeats, n)), -1)
