"""The regularization of a linear unit by batch statistics, and its generalization error."""

import jax.numpy as jnp

from jaxnorm._numerics import nonzero
from jaxnorm.theory.batch_norm._dynamics import Numbers, Values, arrays, of_kind

#: Steps of the recurrence before the asymptotic series of the Gamma functions, whose first
#: neglected term is then below 1e-11.
RECURRENCES = 8


def linear_gamma_decay(batch_size: Numbers, mean_noise: bool = True) -> Values:
    """The strength zeta of the decay zeta gamma^2 of a linear unit with the loss (1/2)(.)^2.

    With m and s the mean and the (biased) standard deviation of M standard normals::

        zeta = (1/2) E(1/s - 1)^2 + (1/2) E(m/s)^2
             = (1/2) (1 + E 1/s^2 - 2 E 1/s) + 1 / (2 (M - 3))
        E 1/s = sqrt(M/2) Gamma((M-2)/2) / Gamma((M-1)/2),   E 1/s^2 = M / (M - 3)

    For large M the first term, of the deviation, is 1/(4M), the second, of the mean, 1/(2M), and
    their sum 3/(4M). Without the factor 1/2 in the loss they are twice as large: the first is then
    1/(2M).

    Args:
        batch_size: M, the number of samples in the statistics, on one device or on all.
        mean_noise: True if the unit subtracts the batch mean.

    Returns:
        zeta, of the shape of M; inf for M <= 3, where the moments are infinite. The relative error
        is some ten roundings: the difference of the Gamma functions is computed without
        cancellation.

    Example:
        >>> f"{linear_gamma_decay(32):.5f} {linear_gamma_decay(32, mean_noise=False):.5f}"
        '0.02753 0.01029'

    Source: Luo et al. 2019, Appendix C.3. Errata: E 1/s^2 is printed there as M times
    Gamma((M-1)/2) / Gamma((M-2)/2); the printed zeta in Gamma functions is the part of the
    deviation alone, 1/(4M), though 3/(4M) is said to follow from it.
    """
    (size,) = arrays(batch_size)
    finite = size > 3
    m = jnp.where(finite, size, 4)
    strength = (3 / (m - 3) - 2 * _mean_excess(m)) / 2
    if mean_noise:
        strength += 1 / (2 * (m - 3))
    return jnp.where(finite, strength, jnp.inf)


def _mean_excess(m: Values) -> Values:
    """E 1/s - 1, about 5/(4M).

    The recurrence takes Gamma(z) / Gamma(z + 1/2) from z = (M-2)/2 to z + RECURRENCES, where the
    asymptotic series of its logarithm holds.
    """
    z = (m - 2) / 2
    log = -jnp.log1p((2 * RECURRENCES - 2) / m) / 2
    for step in range(RECURRENCES):
        log += jnp.log1p(0.5 / (z + step))
    y = 1 / (z + RECURRENCES)
    log += y / 8 - y**3 / 192 + y**5 / 640 - 17 * y**7 / 14336
    return jnp.expm1(log)


def generalization_error(kind: str, load: Numbers, noise: Numbers, decay: Numbers = 0.0) -> Values:
    """The mean squared error on fresh inputs, relative to the teacher without its noise.

    The teacher w*'x + s is linear, s ~ N(0, S). With P samples, N inputs and a = P / N::

        sgd_linear: 1 - a + a S / (1 - a) for a < 1, S / (a - 1) for a > 1
        sgd_relu:   1 - a/4 + a S / (2 (2 - a)) for a < 2
        wn_linear:  S d(zG)/dz - z^2 dG/dz,
                    zG = (1 - a - z + sqrt((z + (1 + sqrt a)^2)(z + (1 - sqrt a)^2))) / 2

    wn_linear is ridge regression (X'X + z I); at z = 0 it is the minimum-norm least squares of
    sgd_linear. sgd_relu assumes that only the samples with a positive target count, and are fitted.

    Args:
        kind: `sgd_linear`, `sgd_relu` or `wn_linear`, weight normalization with gamma decay.
        load: a, not negative.
        noise: S, the variance of the teacher's noise.
        decay: z, not negative; only wn_linear depends on it. The loss (1/P) sum (.)^2 + zeta
            gamma^2 of the paper has z = a zeta.

    Returns:
        The error, of the broadcast shape. With noise it is inf at a = 1 (sgd_linear, and wn_linear
        at z = 0) and at a = 2 (sgd_relu); beyond a = 2 sgd_relu is unknown and nan. Computed
        without cancellation, and differentiable wherever it is finite, a = 0, a = 1 and z = 0
        included (at the kink a = 1 of S = z = 0 with the mean of its two slopes).

    Raises:
        ValueError: for another kind.

    Example:
        >>> f"{generalization_error('wn_linear', 1.0, 0.25, decay=0.25):.5f}"
        '0.39039'

    Source: Luo et al. 2019, section 4.1 and Appendix D; the linear student after Krogh and Hertz.
    Errata: section 4.1 divides only the root of G by 2 zeta, and not all of it. With the strength
    zeta of the paper's own loss as z, the curve is another one, by the factor a.
    """
    a, s, z = arrays(load, noise, decay)
    formulas = {
        "sgd_linear": lambda: _ridge(a, s, jnp.zeros_like(z)),
        "sgd_relu": lambda: _rectified(a, s),
        "wn_linear": lambda: _ridge(a, s, z),
    }
    return of_kind(kind, formulas)()


def _ridge(a: Values, s: Values, z: Values) -> Values:
    """Error of ridge regression, with conjugates in place of differences.

    With D the root: -z^2 dG/dz = (1 - a + X / D) / 2, where X = z (1 + a) + (1 - a)^2, and
    d(zG)/dz = 2a / (D (1 + a + z + D)).
    """
    excess = z * (1 + a) + jnp.square(1 - a)
    square = excess + z * (1 + a + z)
    singular = square == 0  # a = 1 and z = 0: no bias, and infinite variance if there is noise
    root = jnp.sqrt(nonzero(square, singular))
    conjugate = nonzero(excess + jnp.abs(1 - a) * root, singular)
    above = 2 * a * jnp.square(z) / (root * conjugate)
    bias = jnp.where(a > 1, above, (1 - a + excess / root) / 2)
    variance = 2 * a * s / (root * (1 + a + z + root))
    return jnp.where(singular, bias + _pole(s), bias + variance)


def _rectified(a: Values, s: Values) -> Values:
    """Error of a ReLU student that fits the samples with a positive target."""
    singular = a == 2
    variance = a * s / (2 * nonzero(2 - a, singular))
    error = 1 - a / 4 + jnp.where(singular, _pole(s), variance)
    return jnp.where(a > 2, jnp.nan, error)


def _pole(s: Values) -> Values:
    """Infinite if there is noise, which is then amplified without bound."""
    return jnp.where(s > 0, jnp.inf, 0)
