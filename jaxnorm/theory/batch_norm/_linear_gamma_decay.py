"""The gamma decay that batch statistics amount to, exactly, for a linear unit."""

import jax.numpy as jnp

from jaxnorm.theory.batch_norm._numbers import Numbers, Values, as_values

#: How far the argument of the Gamma functions is raised before their asymptotic series is used,
#: whose first neglected term is then under 1e-11.
STEPS = 8


def linear_gamma_decay(batch_size: Numbers, mean_noise: bool = True) -> Values:
    """The strength zeta of the decay zeta gamma^2 of a linear unit with the loss (1/2)(.)^2.

    With m and s the mean and the (biased) standard deviation of M standard normals::

        zeta = (1/2) E(1/s - 1)^2 + (1/2) E(m/s)^2
             = (1/2) (1 + E 1/s^2 - 2 E 1/s) + 1 / (2 (M - 3))
        E 1/s = sqrt(M/2) Gamma((M-2)/2) / Gamma((M-1)/2),   E 1/s^2 = M / (M - 3)

    For large M the first term, of the deviation, is 1/(4M); the second, of the mean, 1/(2M); the
    sum 3/(4M). For a loss without the factor 1/2 they are twice as large: 1/(2M) without the mean.

    Args:
        batch_size: M, a number or an array; infinite moments, for M <= 3, give inf.
        mean_noise: whether the unit subtracts the batch mean.

    Returns:
        zeta, of the shape of M, to some ten roundings of its own size: the difference of the
        Gamma functions is taken without cancellation.

    Elementwise and differentiable; the same under jit, vmap, pmap and shard_map. M is the size of
    the batch that the statistics are taken over, on one device or on all.

    Example:
        >>> f"{linear_gamma_decay(32):.5f} {linear_gamma_decay(32, mean_noise=False):.5f}"
        '0.02753 0.01029'

    Source: Luo et al. 2019, Appendix C.3. Errata: E 1/s^2 is printed there as M times
    Gamma((M-1)/2) / Gamma((M-2)/2); the printed zeta in Gamma functions is the part of the
    deviation alone, 1/(4M), though 3/(4M) is said to follow from it.
    """
    (size,) = as_values(batch_size)
    finite = size > 3
    m = jnp.where(finite, size, 4)
    strength = (3 / (m - 3) - 2 * _mean_excess(m)) / 2
    if mean_noise:
        strength += 1 / (2 * (m - 3))
    return jnp.where(finite, strength, jnp.inf)


def _mean_excess(m: Values) -> Values:
    """E 1/s - 1, which is about 5/(4M).

    Gamma(z) / Gamma(z + 1/2), z = (M-2)/2, is brought to z + STEPS by the recurrence, and there
    the asymptotic series of its logarithm holds.
    """
    z = (m - 2) / 2
    log = -jnp.log1p((2 * STEPS - 2) / m) / 2
    for step in range(STEPS):
        log += jnp.log1p(0.5 / (z + step))
    y = 1 / (z + STEPS)
    log += y / 8 - y**3 / 192 + y**5 / 640 - 17 * y**7 / 14336
    return jnp.expm1(log)
