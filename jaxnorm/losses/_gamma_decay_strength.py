"""The strength of gamma decay in a deep network, from the curvature of the loss."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._trees._prefix import Setting
from jaxnorm.losses._curvature import curvature_strength


def gamma_decay_strength(
    loss_of_perturbations: Callable[[PyTree], Float[Array, ""]],
    normalized: PyTree,
    batch_size: Setting,
    *,
    key: Array,
    probes: int = 1,
    excess_kurtosis: Setting = 0.0,
    nonnegative: bool = False,
    axis_name: Hashable | None = None,
) -> PyTree:
    """Per unit, what batch statistics add to the loss in second order, over gamma^2.

    With statistics of M samples in the place of the population's, a unit's pre-activation
    gamma u + beta moves by gamma (a u + b), a ~ (0, (rho + 2) / (4 M)) and b ~ (0, 1 / M) shared by
    all samples' positions. The expected change of the mean loss is gamma^2 zeta,
    zeta = 1/2 mean_j [(rho + 2) / (4 M) u'H_j u + (1 / M) 1'H_j 1],
    H_j the Hessian of sample j's loss with respect to the unit's pre-activations after the affine.
    In a convolution u and 1 run over the positions of the channel, which share the statistics; in a
    dense layer u'Hu is the paper's diagonal. The forms are estimated from products of the Hessian
    with u and 1 under a random sign for each sample and unit.

    Args:
        loss_of_perturbations: the mean loss of the samples, as a function of a pytree like
            ``normalized`` that is added to each layer's pre-activations *after* scale and bias.
            Samples must not see each other: normalize with the population's statistics.
        normalized: u = (h - mu) / sigma of each layer, (samples, *positions, units).
        batch_size: M, the number of values behind each batch statistic to be imitated: samples, in
            a convolution times positions as far as these are independent; a number, or a pytree
            prefix of numbers and arrays of one a unit.
        key: a PRNG key for the signs.
        probes: how many draws are averaged. Two Hessian products each, some four gradients' time;
            the error of a unit falls with its root.
        excess_kurtosis: rho of each unit's distribution, 0 for a Gaussian; as ``batch_size``.
        nonnegative: whether negative strengths (a saddle) are clipped to 0, after averaging.
        axis_name: under pmap or shard_map, the mapped axis over which strengths are averaged.

    Returns:
        A pytree of the same structure, of one strength a unit, in float32 or wider; unbiased unless
        clipped, of either sign, and a constant for differentiation.

    Raises:
        ValueError: for settings that do not reach a layer.

    Under jit the samples are the whole batch, however it is sharded. Under pmap and shard_map they
    are the device's own (the loss too must be the device's own mean); ``axis_name`` averages, and
    gives each device signs of its own. ReLU has no curvature where it is differentiable: what its
    kink adds when a pre-activation crosses it is not in H.

    Example:
        >>> u = jnp.array([[1.0], [-1.0]])
        >>> loss = lambda shift: jnp.square(2 * u + shift).mean() / 2
        >>> zeta = gamma_decay_strength(loss, u, 10, key=jax.random.key(0))
        >>> [round(float(value), 4) for value in zeta]  # (1/2) (2/40 + 1/10)
        [0.075]

    Source: Luo et al. 2019, appendix C.4. The diagonal of the Hessian, as printed, is right for
    dense layers only: on a convolution it had the wrong sign.
    """

    def loss(scaled: PyTree, shifted: PyTree) -> Float[Array, ""]:
        return loss_of_perturbations(jax.tree.map(_moved, normalized, scaled, shifted))

    zeros = jax.tree.map(lambda u: jnp.zeros_like(_first(u)), normalized)
    return curvature_strength(
        loss, zeros, key, probes, batch_size, excess_kurtosis, nonnegative, axis_name
    )


def _first(u: Float[Array, "samples ... units"]) -> Float[Array, "samples units"]:
    """At the first position, in float32 or wider, and sharded as the samples are."""
    return promote(u[:, *(0,) * (u.ndim - 2)])


def _moved(u: Any, scaled: Any, shifted: Any) -> Float[Array, "samples ... units"]:
    """Moved by ``a u + b``, with a and b the same at all positions."""
    a, b = (jnp.expand_dims(each, range(1, u.ndim - 1)) for each in (scaled, shifted))
    return (a * promote(u) + b).astype(u.dtype)
