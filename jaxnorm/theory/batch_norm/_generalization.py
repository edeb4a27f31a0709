"""The generalization error of a student that is trained to the end on a finite set of samples."""

import jax.numpy as jnp

from jaxnorm._numerics import nonzero
from jaxnorm.theory.batch_norm._numbers import Numbers, Values, as_values, of_kind


def generalization_error(kind: str, load: Numbers, noise: Numbers, decay: Numbers = 0.0) -> Values:
    """The mean squared error on fresh inputs, against the teacher without its noise.

    The teacher w*'x + s is linear, s ~ N(0, S); P samples, N inputs, a = P / N::

        sgd_linear: 1 - a + a S / (1 - a) for a < 1, S / (a - 1) for a > 1
        sgd_relu:   1 - a/4 + a S / (2 (2 - a)) for a < 2
        wn_linear:  S d(zG)/dz - z^2 dG/dz,
                    zG = (1 - a - z + sqrt((z + (1 + sqrt a)^2)(z + (1 - sqrt a)^2))) / 2

    wn_linear is ridge regression (X'X + z I), at z = 0 the minimum-norm least squares of
    sgd_linear. sgd_relu holds if only the samples with a positive target count, and are fitted.

    Args:
        kind: `sgd_linear`, `sgd_relu` or `wn_linear`, weight normalization with gamma decay.
        load: a, not negative.
        noise: S, the variance of the teacher's noise.
        decay: z, not negative, for wn_linear; the others have none. The loss (1/P) sum (.)^2 +
            zeta gamma^2 of the paper has z = a zeta.

    Returns:
        The error, of the broadcast shape. inf at a = 1 (sgd_linear, and wn_linear at z = 0) and
        at a = 2 (sgd_relu) if there is noise; nan beyond a = 2 (sgd_relu), which is not known.

    Raises:
        ValueError: for another kind.

    Elementwise, and differentiable wherever it is finite, a = 0, a = 1 and z = 0 included (at the
    kink a = 1 of S = z = 0 with the mean of its two slopes). Computed without cancellation. The
    same under jit, vmap, pmap and shard_map.

    Example:
        >>> f"{generalization_error('wn_linear', 1.0, 0.25, decay=0.25):.5f}"
        '0.39039'

    Source: Luo et al. 2019, section 4.1 and Appendix D; the linear student after Krogh and Hertz.
    Erratum: in section 4.1 only the root of G is divided by 2 zeta; all of it is. With the strength
    zeta of the paper's own loss as z, the curve is another one, by the factor a.
    """
    a, s, z = as_values(load, noise, decay)
    formulas = {
        "sgd_linear": lambda: _ridge(a, s, jnp.zeros_like(z)),
        "sgd_relu": lambda: _rectified(a, s),
        "wn_linear": lambda: _ridge(a, s, z),
    }
    return of_kind(kind, formulas)()


def _ridge(a: Values, s: Values, z: Values) -> Values:
    """With D the root: the derivatives of G, and conjugates in place of differences.

    -z^2 dG/dz = (1 - a + X / D) / 2 with X = z (1 + a) + (1 - a)^2, and d(zG)/dz =
    2a / (D (1 + a + z + D)).
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
    singular = a == 2
    variance = a * s / (2 * nonzero(2 - a, singular))
    error = 1 - a / 4 + jnp.where(singular, _pole(s), variance)
    return jnp.where(a > 2, jnp.nan, error)


def _pole(s: Values) -> Values:
    """Noise that is amplified without bound."""
    return jnp.where(s > 0, jnp.inf, 0)
