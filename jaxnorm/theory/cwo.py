"""The constrained step and the gradient of reparametrized weights: Ikami et al. 2021, 3.4 and 3.5.

As in the paper's W x, the last axis of the weights is the fan-in (a Flax kernel is the transpose).
Everything is computed per unit, so jit, pmap and shard_map give the same values.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import _numerics
from jaxnorm._sphere import center, project_to_sphere

__all__ = [
    "constrained_step",
    "standardization_gradient",
    "step_coefficients",
]

Weights = Float[Array, "*units inputs"]
Units = Float[Array, "*units"]
Scalar = float | Float[Array, ""]


def constrained_step(
    weights: Weights, gradient: Weights, learning_rate: Scalar, squared_radius: Scalar = 2.0
) -> Weights:
    """The point of the constraint set that is nearest to a gradient step.

    The minimizer of ||x - (w - a g)||^2 subject to 1'x = 0 and ||x||^2 = c:
    sqrt(c) (w - a (g - mean g)) / ||w - a (g - mean g)|| from zero-sum weights w. Since ||x|| is
    fixed, this point also minimizes the linearized loss g'x - w'x / a over the set.

    Args:
        weights: w, of any sum and norm; units along the leading axes.
        gradient: g, of the same shape.
        learning_rate: a.
        squared_radius: c.

    Returns:
        An array of the same shape. Zeros, with gradient zero, where the gradient step ends in a
        constant vector, to which all points of the set are equally near.

    Raises:
        ValueError: for units with a single weight, or if c is not positive.

    The result is the same under jit, pmap and shard_map.

    Example:
        >>> w, g = jnp.array([1.0, -1.0, 0.0, 0.0]), jnp.array([2.0, 1.0, 0.0, -3.0])
        >>> [round(float(x), 4) for x in constrained_step(w, g, 1.0)]
        [-0.378, -0.7559, 0.0, 1.1339]

    Source: Ikami et al. 2021, Eqs. 9 and 11.
    """
    return project_to_sphere(weights - learning_rate * gradient, -1, squared_radius)


def step_coefficients(
    weights: Weights, gradient: Weights, learning_rate: Scalar, squared_radius: Scalar = 2.0
) -> tuple[Units, Units]:
    """Decay b and step length a' of `constrained_step` as (1 - b) w - a' (g - mean g).

    b = 1 - sqrt(c) / r and a' = sqrt(c) a / r, with r = ||w - a (g - mean g)||.

    Args:
        weights: w, zero-sum; units along the leading axes.
        gradient: g, of the same shape.
        learning_rate: a.
        squared_radius: c.

    Returns:
        The pair (b, a'), one value per unit; (1, 0) with gradient zero where r = 0.

    The result is the same under jit, pmap and shard_map.

    Example:
        >>> w, g = jnp.array([1.0, -1.0, 0.0, 0.0]), jnp.zeros(4)
        >>> [float(x) for x in step_coefficients(w, g, 0.5)]  # the weights do not move
        [0.0, 0.5]

    Source: Ikami et al. 2021, Eqs. 12 to 14. Erratum: Eqs. 13 and 14 print 1 for sqrt(c); for any c
    but 1 the step would then end on the unit sphere and not on the constraint set.
    """
    moved = weights - learning_rate * center(gradient, -1)
    squared = jnp.square(moved).sum(-1)
    radius = jnp.sqrt(jnp.asarray(squared_radius, squared.dtype))
    shrinkage = _numerics.quotient(radius, _numerics.root(squared))
    return 1 - shrinkage, learning_rate * shrinkage


def standardization_gradient(weights: Weights, gradient: Weights) -> Weights:
    """The gradient at w of a loss that sees the standardized weights u = (w - mean w) / s.

    (g - mean g - (u'g / n) u) / s, with s the standard deviation of w and g the gradient at u. The
    loss does not depend on s, but the gradient does: it explodes if s becomes small, by weight
    decay for example. `constrained_step` has no such division.

    Args:
        weights: w; units along the leading axes.
        gradient: g, of the same shape.

    Returns:
        An array of the same shape; zero for a constant unit, which cannot be standardized.

    The result is the same under jit, pmap and shard_map.

    Example:
        >>> w, g = jnp.array([1.0, -1.0, 0.0, 0.0]), jnp.array([2.0, 1.0, 0.0, -3.0])
        >>> norms = [jnp.linalg.norm(standardization_gradient(s * w, g)) for s in (1, 0.01)]
        >>> round(float(norms[1] / norms[0]), 2)
        100.0

    Source: Ikami et al. 2021, Eqs. 15 to 19. Erratum: Eqs. 18 and 19 exchange the names of the two
    gradients; as printed, the one at w would be the centered one at u, without 1 / s.
    """
    n = weights.shape[-1]
    deviation = center(weights, -1)
    variance = jnp.square(deviation).mean(-1, keepdims=True)
    inverse = _numerics.quotient(jnp.ones_like(variance), _numerics.root(variance))
    u = deviation * inverse
    slope = (u * gradient).sum(-1, keepdims=True) / n
    return (center(gradient, -1) - slope * u) * inverse
