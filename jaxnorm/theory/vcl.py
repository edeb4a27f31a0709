"""Variances of sample variances: Littwin and Wolf 2018, sections 2 to 2.3.

All functions are elementwise in their arguments, differentiable, and the same under jit, vmap, pmap
and shard_map.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import _checks, _numerics

__all__ = [
    "mixture_kurtosis",
    "sample_variance_variance",
    "separation_threshold",
    "variance_ratio_bound",
]

#: A Python number or an array; arrays must broadcast.
Number = float | Float[Array, "..."]
Values = Float[Array, "..."]


def sample_variance_variance(fourth_moment: Number, variance: Number, n: int) -> Values:
    """The variance of the unbiased variance of n independent samples.

    m4 / n - sigma^4 (n - 3) / (n (n - 1)).

    Args:
        fourth_moment: m4, about the mean.
        variance: sigma^2.
        n: the sample size, at least 2.

    Returns:
        An array of the arguments' common shape.

    Raises:
        ValueError: for n below 2.

    Elementwise: the same under jit, pmap and shard_map.

    Example:
        >>> float(sample_variance_variance(3.0, 1.0, 5))  # 2 / (n - 1) for a Gaussian
        0.5

    Source: Littwin and Wolf 2018, Eq. 1.
    """
    if n < 2:
        raise ValueError(f"n is {n}; expected at least 2: one sample has no unbiased variance.")
    fourth, second = jnp.asarray(fourth_moment), jnp.asarray(variance)
    # Not jnp.square(second): the square of an integer may not fit 32 bits.
    return fourth / n - second * (second * ((n - 3) / (n * (n - 1))))


def mixture_kurtosis(p: Number, between: Number, within: Number) -> Values:
    """The kurtosis of a projected mixture of two Gaussians with the same covariance.

    3 + a (1 - 6a) b^2 / (a b + w)^2, with a = p (1 - p). It is monotonic in b / w. For p below
    `separation_threshold` it increases, and the projection of least kurtosis merges the two modes;
    for p above it decreases, and that projection separates them as linear discriminant analysis
    does.

    Args:
        p: the probability of one component.
        between: b, the squared distance of the projected means.
        within: w, the variance of either projected component.

    Returns:
        An array of the arguments' common shape. For a constant, a b + w = 0, it is 3 with gradient
        0, as in `jaxnorm.kurtosis`.

    Elementwise: the same under jit, pmap and shard_map.

    Example:
        >>> [round(float(mixture_kurtosis(p, 36.0, 1.0)), 3) for p in (0.1, 0.25, 0.5)]
        [5.985, 2.494, 1.38]

    Source: Littwin and Wolf 2018, Theorem 2 and Eq. 9. Errata: the second case of Eq. 10 prints the
    same ratio twice; there the least kurtosis is at the least b / w. Eq. 9 holds for components of
    one covariance (the theorem prints Sigma_2 for both, the proof sums over Sigma_1 and Sigma_2).
    """
    prior, b, w = (jnp.asarray(x) for x in (p, between, within))
    a = prior * (1 - prior)
    return 3 + a * (1 - 6 * a) * jnp.square(_numerics.quotient(b, a * b + w))


def separation_threshold() -> float:
    """The prior from which the loss separates two modes: (1 - sqrt(1/3)) / 2 = 0.2113.

    There a = p (1 - p) = 1/6, and every projection of the mixture has the kurtosis of a Gaussian.

    Returns:
        A Python float: a constant under any transformation.

    Example:
        >>> round(separation_threshold(), 6)
        0.211325

    Source: Littwin and Wolf 2018, Theorem 2.
    """
    return (1 - math.sqrt(1 / 3)) / 2


def variance_ratio_bound(kurtosis: Number, n: int, epsilon: Number) -> tuple[Values, Values]:
    """A bound on the distance of the ratio of two sample variances from 1, and its probability.

    P[(1 - s1^2 / s2^2)^2 <= 4 e^2 / (1 - e)^2] >= max(0, 1 - V / e^2)^2, with
    V = kurtosis / n - (n - 3) / (n (n - 1)), the variance of s^2 / sigma^2.

    Args:
        kurtosis: of the distribution.
        n: the size of each sample, at least 2.
        epsilon: e, between 0 and 1.

    Returns:
        The pair (bound, least probability); the probability has the shape of both arguments.

    Raises:
        ValueError: for n below 2, and for e outside (0, 1).

    Elementwise: the same under jit, pmap and shard_map.

    Example:
        >>> bound, probability = variance_ratio_bound(3.0, 1001, 0.5)
        >>> float(bound), round(float(probability), 4)
        (4.0, 0.9841)

    Source: Littwin and Wolf 2018, Theorem 3. Errata: Eqs. 12 and 16 also print the lower bound
    4 e^2 / (1 + e)^2, which does not follow, since the ratio may be exactly 1. The base of the
    square may be negative (for any e at n = 2 and kurtosis 3), and the square as printed would then
    promise a positive probability, even one above 1; the base is clipped at 0.
    """
    _checks.check_number(epsilon, _checks.INSIDE_UNIT, "epsilon", "0.5 for example")
    e = jnp.asarray(epsilon)
    return 4 * jnp.square(e / (1 - e)), jnp.square(_least_probability(kurtosis, n, e))


def _least_probability(kurtosis: Number, n: int, epsilon: Values) -> Values:
    """Chebyshev's lower bound on the probability of |1 - s^2 / sigma^2| <= epsilon."""
    variance = sample_variance_variance(kurtosis, 1.0, n)
    return jnp.maximum(1 - variance / jnp.square(epsilon), 0)
