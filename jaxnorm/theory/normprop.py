"""How far normalization propagates: Arpit et al. 2016, sections 3.2 and 3.4.

Weights are as in the paper, u = W x: a unit is a row of W (a Flax kernel is the transpose).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import _numerics
from jaxnorm.activations import jacobian_factor
from jaxnorm.activations._evaluate import Activation
from jaxnorm.activations._gaussian_moments import Moment

__all__ = [
    "canonical_error",
    "canonical_error_bound",
    "coherence",
    "expected_jacobian_gram",
]

Matrix = Float[Array, "units inputs"]
Scalar = float | Float[Array, ""]
Value = Float[Array, ""]


def coherence(weights: Matrix) -> Value:
    """The largest |cos| between two units: max over i != j of |w_i'w_j| / (||w_i|| ||w_j||).

    Args:
        weights: W, a unit a row.

    Returns:
        A scalar from 0 to 1. A zero unit has no angle and counts as 0, with gradient zero; so does
        a single unit. Units may be of any size.

    Differentiable except at ties; under pmap and shard_map it is of the device's own units.

    Example:
        >>> round(float(coherence(jnp.array([[1.0, 0.0], [-3.0, 4.0]]))), 4)
        0.6

    Source: Arpit et al. 2016, Proposition 1 (footnote).
    """
    # Of size one first, so that no square overflows or vanishes.
    largest = jax.lax.stop_gradient(jnp.abs(weights).max(-1, keepdims=True, initial=0.0))
    weights = weights / _numerics.nonzero(largest)
    squared = jnp.square(weights).sum(-1, keepdims=True)
    unit = _numerics.quotient(weights, _numerics.root(squared))
    return jnp.abs(_off_diagonal(unit @ unit.T)).max()


def canonical_error(weights: Matrix, sigma: Scalar = 1.0) -> Value:
    """How far from diagonal the pre-activations' covariance is: min over d of ||S - diag(d)||_F.

    S = sigma^2 W W', and the nearest diagonal is its own, d_i = sigma^2 ||w_i||^2.

    Args:
        weights: W, a unit a row.
        sigma: the standard deviation of the inputs, which are uncorrelated with mean zero.

    Returns:
        A scalar; zero, with gradient zero, for orthogonal units.

    Differentiable; under pmap and shard_map it is that of the device's own units.

    Example:
        >>> round(float(canonical_error(jnp.array([[1.0, 0.0], [-3.0, 4.0]]))), 4)
        4.2426

    Source: Arpit et al. 2016, Proposition 1, left-hand side.
    """
    return sigma * sigma * _numerics.root(jnp.square(_off_diagonal(weights @ weights.T)).sum())


def canonical_error_bound(weights: Matrix, sigma: Scalar = 1.0) -> Value:
    """A bound on `canonical_error` by the coherence mu.

    sigma^2 mu sqrt(sum over i != j of ||w_i||^2 ||w_j||^2). It is an equality where all pairs of
    units have the same |cos|, two units for example.

    Args:
        weights: W, a unit a row.
        sigma: the standard deviation of the inputs.

    Returns:
        A scalar; zero, with gradient zero, for weights that are all zero.

    Differentiable except at ties; under pmap and shard_map it is of the device's own units.

    Example:
        >>> round(float(canonical_error_bound(jnp.array([[1.0, 0.0], [-3.0, 4.0]]))), 4)
        4.2426

    Source: Arpit et al. 2016, Proposition 1.
    """
    squared = jnp.square(weights).sum(-1)
    pairs = _off_diagonal(jnp.outer(squared, squared)).sum()
    return sigma * sigma * coherence(weights) * _numerics.root(pairs)


def expected_jacobian_gram(activation: Activation) -> Moment:
    """The number g in E J J' = g I, for a layer of standardized activations and incoherent units.

    J is the Jacobian of (f(Wx) - mean) / std with unit-norm rows and x ~ N(0, I); g is
    E f'(Z)^2 / Var f(Z), Z ~ N(0, 1). The diagonal of E J J' is g for any W with unit-norm rows;
    elsewhere it is 0 for orthogonal ones.

    Args:
        activation: an elementwise function, as in `jaxnorm.gaussian_moments`.

    Returns:
        A Python float, the square of `jaxnorm.jacobian_factor`.

    Raises:
        ValueError: for an activation that is constant or has no finite moments.

    Computed while tracing: nothing runs on the devices.

    Example:
        >>> import jax
        >>> round(expected_jacobian_gram(jax.nn.relu), 4)
        1.4669

    Source: Arpit et al. 2016, Eq. 7.
    """
    factor = jacobian_factor(activation)
    return factor * factor


def _off_diagonal(matrix: Float[Array, "units units"]) -> Float[Array, "units units"]:
    return matrix * (1 - jnp.eye(len(matrix), dtype=matrix.dtype))
