"""The strength of gamma decay from the scales and biases of a network, whatever its layers are."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import wide_dtype
from jaxnorm._trees._prefix import Setting, setting_per_leaf
from jaxnorm.losses._curvature import curvature_strength


def affine_gamma_decay_strength(
    loss: Callable[[PyTree, PyTree, PyTree], Float[Array, ""]],
    scales: PyTree,
    biases: PyTree,
    samples: PyTree,
    batch_size: Setting,
    *,
    key: Array,
    means: Setting = 0.0,
    stddevs: Setting = 1.0,
    probes: int = 1,
    excess_kurtosis: Setting = 0.0,
    nonnegative: bool = False,
    axis_name: Hashable | None = None,
) -> PyTree:
    """The strength of `gamma_decay_strength`, from the curvature in gamma and beta.

    A unit's h = gamma k + beta, k of mean mu and standard deviation s. Statistics of M samples
    instead of the population's move it by gamma s (a u + b), u = (k - mu) / s, a ~ (0,
    (rho + 2) / (4 M)) and b ~ (0, 1 / M): the same as noise on gamma and beta that all samples
    share. So zeta = 1/2 [(rho + 2) / (4 M) D_a + (1 / M) D_b], with the second derivatives of the
    mean loss D_a along (gamma, beta) = (1, -mu) and D_b along (0, s). They are estimated from
    Hessian products under a random sign for each sample and unit.

    Args:
        loss: ``loss(scales, biases, sample)`` of one sample, or the mean over a few, with the
            population's statistics: samples must not see each other.
        scales: gamma of each layer, one a unit.
        biases: beta, of the same structure.
        samples: a pytree of arrays with the samples (or the parts of a few) along axis 0; each has
            signs of its own.
        batch_size: M, as in `gamma_decay_strength`; for a convolution times the positions as far as
            they are independent, which `jaxnorm.statistics.independent_positions` estimates.
        key: a PRNG key for the signs.
        means: mu of each unit; a number or a pytree prefix. 0 after population normalization; of
            weight normalization the mean of v'x / ||v||.
        stddevs: s, likewise; 1 after population normalization.
        probes: how many draws are averaged; two Hessian products each.
        excess_kurtosis: rho of each unit's distribution, 0 for a Gaussian.
        nonnegative: whether negative strengths are clipped to 0, after averaging.
        axis_name: under pmap or shard_map, the mapped axis over which strengths are averaged.

    Returns:
        A pytree of the structure of ``scales``, in float32 or wider, as `gamma_decay` takes it; a
        constant for differentiation.

    Raises:
        ValueError: for biases of another structure than the scales, and settings that do not reach
            a layer.

    Under jit the samples are the whole batch, however it is sharded; under pmap and shard_map the
    device's own, averaged with ``axis_name``.

    Example:
        >>> loss = lambda gamma, beta, u: jnp.square(2 * gamma[0] * u + beta[0]) / 2
        >>> one, u = jnp.ones(1), jnp.array([1.0, -1.0])
        >>> zeta = affine_gamma_decay_strength(loss, one, 0 * one, u, 10, key=jax.random.key(0))
        >>> [round(float(value), 4) for value in zeta]  # (1/2) ((2/40) 4 + 1/10)
        [0.15]

    Source: Luo et al. 2019, appendix C.4; in this form, ours.
    """
    count, structure = len(jax.tree.leaves(samples)[0]), jax.tree.structure(scales)
    mu, s = (
        jax.tree.unflatten(structure, setting_per_leaf(setting, scales, name))
        for setting, name in ((means, "means"), (stddevs, "stddevs"))
    )

    def of_sample(scaled: PyTree, shifted: PyTree, sample: PyTree) -> Float[Array, ""]:
        moved_scales = jax.tree.map(_plus, scales, scaled)
        moved_biases = jax.tree.map(
            lambda bias, a, b, mu, s: _plus(bias, s * b - mu * a), biases, scaled, shifted, mu, s
        )
        return loss(moved_scales, moved_biases, sample)

    def of_all(scaled: PyTree, shifted: PyTree) -> Float[Array, ""]:
        return jax.vmap(of_sample)(scaled, shifted, samples).mean()

    zeros = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), wide_dtype(x.dtype)), scales)
    return curvature_strength(
        of_all, zeros, key, probes, batch_size, excess_kurtosis, nonnegative, axis_name
    )


def _plus(parameter: Any, change: Any) -> Float[Array, " units"]:
    moved: Float[Array, " units"] = parameter + change.astype(parameter.dtype)
    return moved
