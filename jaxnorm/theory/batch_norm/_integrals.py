"""The Gaussian integrals of a ReLU student and teacher."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxnorm.theory.batch_norm._numbers import Numbers, Values, as_values


def integrals(Q: Numbers, R: Numbers) -> tuple[Values, Values, Values]:
    """The averages over the inputs that drive the dynamics of a ReLU unit: (I1, I2, I3).

    With (s, t) centred normals of variances Q^2 and 1 and of correlation R (student and teacher
    before the rectifier) and delta = 1[s > 0] (relu(t) - relu(s))::

        I1 = E delta s   = Q A - Q^2 / 2
        I2 = E delta^2   = Q^2 / 2 + B - 2 Q A
        I3 = E delta t   = B - Q R / 2
        A = (pi R + 2 sqrt(1 - R^2) + 2 R asin R) / (4 pi)
        B = (pi + 2 R sqrt(1 - R^2) + 2 asin R) / (4 pi)

    Args:
        Q: the length of the student, gamma; not negative.
        R: the cosine between student and teacher; beyond -1 and 1, where rounding may bring it,
            the averages go on in straight lines. The two broadcast.

    Returns:
        The three averages, in the type of the arguments. Their derivatives are finite everywhere;
        at R = 1 those by R are Q/2, -Q and -Q/2 (second derivatives are infinite there, as they
        are in truth).

    Elementwise; the same under jit, vmap, pmap and shard_map.

    Example:
        >>> [f"{value:.5f}" for value in integrals(0.8, 0.6)]
        ['-0.04898', '0.20677', '0.18881']

    Source: Luo et al. 2019, Eqs. 13-15; the inputs' norm, which I2 has as a factor, is 1. Erratum:
    the second term of Eq. 15 is printed with pi R for pi.
    """
    q, r = as_values(Q, R)
    both, teacher = _both(r), _teacher(r)
    return (
        q * (both - q / 2),
        jnp.square(q) / 2 + teacher - 2 * q * both,
        teacher - q * r / 2,
    )


@jax.custom_jvp
def _both(r: Values) -> Values:
    """A: E relu(s) relu(t) at Q = 1."""
    return (r * _angle(r) + _sine(r)) / (2 * math.pi)


@_both.defjvp
def _both_jvp(primals: Any, tangents: Any) -> Any:
    """The terms of autodiff that are infinite at R = 1 cancel; this is what they leave."""
    (r,), (tangent,) = primals, tangents
    return _both(r), tangent * _angle(r) / (2 * math.pi)


@jax.custom_jvp
def _teacher(r: Values) -> Values:
    """B: E 1[s > 0] relu(t)^2."""
    return (_angle(r) + r * _sine(r)) / (2 * math.pi)


@_teacher.defjvp
def _teacher_jvp(primals: Any, tangents: Any) -> Any:
    (r,), (tangent,) = primals, tangents
    return _teacher(r), tangent * _sine(r) / math.pi


def _angle(r: Values) -> Values:
    """The angle, in radians, over which student and teacher are both active."""
    return math.pi / 2 + jnp.arcsin(jnp.clip(r, -1, 1))


def _sine(r: Values) -> Values:
    """sqrt(1 - r^2), without the cancellation near 1."""
    return jnp.sqrt(jnp.maximum((1 - r) * (1 + r), 0))
