"""Error bounds of normalization propagation: Arpit et al. 2016, sections 3.2 and 3.4.

As in the paper's u = W x, each row of the weights is a unit (a Flax kernel is the transpose).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import _numerics

__all__ = [
    "canonical_error",
    "canonical_error_bound",
    "coherence",
]

Matrix = Float[Array, "units inputs"]
Scalar = float | Float[Array, ""]
Value = Float[Array, ""]


def coherence(weights: Matrix) -> Value:
    """The largest |cos| between two units: max over i != j of |w_i'w_j| / (||w_i|| ||w_j||).

    Args:
        weights: W, one row per unit; rows may be of any size.

    Returns:
        A scalar from 0 to 1. The cosine of a zero row counts as 0, with gradient zero; the
        coherence of a single unit is 0.

    Differentiable except at ties. Under pmap and shard_map each device compares its local units.

    Example:
        >>> round(float(coherence(jnp.array([[1.0, 0.0], [-3.0, 4.0]]))), 4)
        0.6

    Source: Arpit et al. 2016, Proposition 1 (footnote).
    """
    # Entries of at most 1: no square overflows or vanishes.
    largest = jax.lax.stop_gradient(jnp.abs(weights).max(-1, keepdims=True, initial=0.0))
    weights = weights / _numerics.nonzero(largest)
    squared = jnp.square(weights).sum(-1, keepdims=True)
    directions = _numerics.quotient(weights, _numerics.root(squared))
    return jnp.abs(_off_diagonal(_numerics.product(directions, directions.T))).max()


def canonical_error(weights: Matrix, sigma: Scalar = 1.0) -> Value:
    """The distance of the pre-activations' covariance from diagonal: min over d ||S - diag(d)||_F.

    S = sigma^2 W W', and the nearest diagonal is its own, d_i = sigma^2 ||w_i||^2.

    Args:
        weights: W, one row per unit.
        sigma: the standard deviation of the inputs, which are uncorrelated with mean zero.

    Returns:
        A scalar; zero, with gradient zero, for orthogonal units.

    Differentiable. Under pmap and shard_map each device computes the error of its local units.

    Example:
        >>> round(float(canonical_error(jnp.array([[1.0, 0.0], [-3.0, 4.0]]))), 4)
        4.2426

    Source: Arpit et al. 2016, Proposition 1, left-hand side.
    """
    covariance = _numerics.product(weights, weights.T)
    return sigma * sigma * _numerics.root(jnp.square(_off_diagonal(covariance)).sum())


def canonical_error_bound(weights: Matrix, sigma: Scalar = 1.0) -> Value:
    """A bound on `canonical_error` by the coherence mu.

    sigma^2 mu sqrt(sum over i != j of ||w_i||^2 ||w_j||^2). It is attained if all pairs of units
    have the same |cos|, for example if there are two units.

    Args:
        weights: W, one row per unit.
        sigma: the standard deviation of the inputs.

    Returns:
        A scalar; zero, with gradient zero, if all weights are zero.

    Differentiable except at ties. Under pmap and shard_map each device bounds the error of its
    local units.

    Example:
        >>> round(float(canonical_error_bound(jnp.array([[1.0, 0.0], [-3.0, 4.0]]))), 4)
        4.2426

    Source: Arpit et al. 2016, Proposition 1.
    """
    squared = jnp.square(weights).sum(-1)
    pairs = _off_diagonal(jnp.outer(squared, squared)).sum()
    return sigma * sigma * coherence(weights) * _numerics.root(pairs)


def _off_diagonal(matrix: Float[Array, "units units"]) -> Float[Array, "units units"]:
    """The matrix with zeros on its diagonal."""
    return matrix * (1 - jnp.eye(len(matrix), dtype=matrix.dtype))
