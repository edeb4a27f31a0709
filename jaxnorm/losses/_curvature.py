"""The strength of gamma decay in a deep network, from second derivatives of the loss."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote, wide_dtype
from jaxnorm._trees._constrained import Setting, setting_per_leaf


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


def curvature_strength(
    loss: Callable[[PyTree, PyTree], Float[Array, ""]],
    zeros: PyTree,
    key: Array,
    probes: int,
    batch_size: Setting,
    excess_kurtosis: Setting,
    nonnegative: bool,
    axis_name: Hashable | None,
) -> PyTree:
    """Zeta = 1/2 [(rho + 2) / (4 M) D_a + (1 / M) D_b] of each unit.

    ``loss(a, b)`` is the mean loss where each sample's normalized pre-activation u is moved, after
    the affine, by a u + b; a and b are trees of (samples, units), as ``zeros`` is. D_a and D_b are
    the sums over samples of the second derivatives along a and b. Random signs cancel the products
    of two units, on average.
    """
    if axis_name is not None:  # Each device's signs are its own.
        key = jax.random.fold_in(key, jax.lax.axis_index(axis_name))

    def along(signs: PyTree, f: Callable[[PyTree], Any]) -> PyTree:
        products = jax.jvp(jax.grad(f), (zeros,), (signs,))[1]
        return jax.tree.map(lambda sign, product: (sign * product).sum(0), signs, products)

    def probe(key: Array) -> tuple[PyTree, PyTree]:
        signs = optax.tree.random_like(key, zeros, jax.random.rademacher)
        by_scale = along(signs, lambda a: loss(a, zeros))
        return by_scale, along(signs, lambda b: loss(zeros, b))

    def strength(by_scale: Any, by_shift: Any, rho: Any, size: Any) -> Float[Array, " units"]:
        rho, size = (jnp.asarray(setting, by_scale.dtype) for setting in (rho, size))
        result = ((rho + 2) / 4 * by_scale.mean(0) + by_shift.mean(0)) / (2 * size)
        average = result if axis_name is None else jax.lax.pmean(result, axis_name)
        return jax.lax.stop_gradient(jnp.maximum(average, 0) if nonnegative else average)

    forms = map(jax.tree.leaves, jax.lax.map(probe, jax.random.split(key, probes)))
    kurtoses = setting_per_leaf(excess_kurtosis, zeros, "excess_kurtosis")
    sizes = setting_per_leaf(batch_size, zeros, "batch_size")
    strengths = map(strength, *forms, kurtoses, sizes)
    return jax.tree.unflatten(jax.tree.structure(zeros), strengths)
