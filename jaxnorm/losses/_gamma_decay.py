"""Gamma decay, and its strength in one rectified layer: the paper's Eq. 3."""

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._trees._constrained import Setting, check_per_unit, setting_per_leaf
from jaxnorm._trees._paths import flat_leaves, is_absent


def gamma_decay(scales: PyTree, strengths: Setting) -> Float[Array, ""]:
    """The sum over layers and units of zeta_i gamma_i^2.

    Args:
        scales: a pytree of the scales gamma.
        strengths: zeta; a number, or a pytree prefix of numbers, None (no decay) and arrays of one
            value a unit, as `gamma_decay_strength` makes.

    Returns:
        A scalar in float32 or wider, to be added to the mean loss of the samples.

    Raises:
        ValueError: for scales that have no strength, and for strengths of another shape.

    A function of parameters: the same under jit, pmap and shard_map, where parameters are; it is to
    be counted once, not once a device. Differentiable in the scales; the strengths of
    `gamma_decay_strength` are constants.

    Example:
        >>> scales = {"dense": jnp.array([1.0, 2.0]), "head": jnp.array([3.0])}
        >>> float(gamma_decay(scales, {"dense": jnp.array([0.5, 0.25]), "head": None}))
        1.5

    Source: Luo et al. 2019, Eq. 3.
    """
    leaves = flat_leaves(scales)
    settings = setting_per_leaf(strengths, scales, "strengths")
    terms = [
        _term(scale, strength)
        for scale, strength in zip(leaves, settings, strict=True)
        if not is_absent(scale) and strength is not None
    ]
    return sum(terms, jnp.float32(0))


def _term(scale: Any, strength: Any) -> Float[Array, ""]:
    check_per_unit(strength, scale.shape, "a strength")
    wide = promote(scale)
    return (jnp.asarray(strength, wide.dtype) * jnp.square(wide)).sum()


def perceptron_gamma_decay_strength(
    gamma_gradients: Float[Array, "samples units"],
    preactivations: Float[Array, "samples units"],
    batch_size: int | float,
    *,
    excess_kurtosis: float | Float[Array, " units"] = 0.0,
    axis_name: Hashable | None = None,
) -> Float[Array, " units"]:
    """Zeta = (rho + 2) / (8 M) I(gamma) + 1 / (2 M) mean sigmoid(h), for one layer of ReLU.

    I(gamma) is the mean square of the samples' gradients of the loss with respect to gamma, the
    empirical Fisher information, in the place of the second derivative; the rectifier is taken for
    a softplus. Both hold for a log likelihood whose model is right; `gamma_decay_strength` needs
    neither, and any depth.

    Args:
        gamma_gradients: dl / dgamma of each sample and unit: the gradient with respect to h, times
            the normalized h.
        preactivations: h = gamma (w'x - mu) / sigma + beta, with the population's mu and sigma.
        batch_size: M, the number of samples behind the batch statistics to be imitated.
        excess_kurtosis: rho of w'x: 0 for a Gaussian, ``kurtosis(h, 0) - 3`` for any other.
        axis_name: under pmap or shard_map, the mapped axis over which strengths are averaged.

    Returns:
        One strength a unit, never negative for rho >= -2, in float32 or wider; a constant for
        differentiation.

    Under jit the samples are the whole batch, however it is sharded; under pmap and shard_map the
    device's own, averaged with ``axis_name``.

    Example:
        >>> g, h = jnp.array([[1.0], [-1.0]]), jnp.zeros((2, 1))
        >>> perceptron_gamma_decay_strength(g, h, 4).tolist()
        [0.125]

    Source: Luo et al. 2019, Eq. 3 and appendix C.1. Erratum: rho is called the kurtosis there; it
    is the excess kurtosis, since the variance of sigma_B is (rho + 2) sigma^2 / (4M).
    """
    information = jnp.square(promote(gamma_gradients)).mean(0)
    activity = jax.nn.sigmoid(promote(preactivations)).mean(0)
    rho = jnp.asarray(excess_kurtosis, information.dtype)
    strength = (rho + 2) / 8 * information + activity.astype(information.dtype) / 2
    average = strength if axis_name is None else jax.lax.pmean(strength, axis_name)
    return jax.lax.stop_gradient(average / batch_size)
