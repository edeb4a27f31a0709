"""Gamma decay, and its strength: from curvatures of the loss."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._axes import check_per_unit
from jaxnorm._checks import FINITE, NONNEGATIVE, POSITIVE, Range, check_number
from jaxnorm._layout import Setting, broadcast
from jaxnorm._numerics import promote, wide_dtype
from jaxnorm._paths import is_absent, named_leaves

Values = Float[Array, "..."]

#: ``loss(a, b)`` of two trees of (samples, units).
PairLoss = Callable[[PyTree, PyTree], Float[Array, ""]]


def gamma_decay(scales: PyTree, strengths: Setting) -> Float[Array, ""]:
    """Sum over layers and units of zeta_i gamma_i^2.

    Args:
        scales: a pytree of the scales gamma.
        strengths: zeta; a number, or a pytree prefix of numbers, None (no decay) and arrays of one
            value per unit, as `gamma_decay_strength` returns.

    Returns:
        A scalar in float32 or wider, to be added to the mean loss of the samples.

    Raises:
        ValueError: for scales without a strength, and for strengths of another shape.

    It is a function of parameters, the same under jit, pmap and shard_map if parameters are: add
    it once, not once per device. It is differentiable in the scales; the strengths of
    `gamma_decay_strength` are constants.

    Example:
        >>> scales = {"dense": jnp.array([1.0, 2.0]), "head": jnp.array([3.0])}
        >>> float(gamma_decay(scales, {"dense": jnp.array([0.5, 0.25]), "head": None}))
        1.5

    Source: Luo et al. 2019, Eq. 3.
    """

    def penalty(scale: Any, strength: Any) -> Any:
        if is_absent(scale) or strength is None:
            return None
        check_per_unit(strength, scale.shape, "a strength")
        wide = promote(scale)
        return (jnp.asarray(strength, wide.dtype) * jnp.square(wide)).sum()

    per_scale = _per_leaf(strengths, scales, "strengths", FINITE)
    penalties = jax.tree.map(penalty, scales, per_scale, is_leaf=is_absent)
    total: Float[Array, ""] = sum(jax.tree.leaves(penalties), jnp.float32(0))
    return total


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
    """Second-order effect of batch statistics on the loss over gamma^2, per unit.

    With statistics of M samples in the place of the population's, a unit's pre-activation
    gamma u + beta moves by gamma (a u + b), a ~ (0, (rho + 2) / (4 M)) and b ~ (0, 1 / M) shared by
    all positions of all samples. The expected change of the mean loss is gamma^2 zeta,
    zeta = 1/2 mean_j [(rho + 2) / (4 M) u'H_j u + (1 / M) 1'H_j 1],
    H_j the Hessian of sample j's loss with respect to the unit's pre-activations after the affine.
    In a convolution u and 1 run over the positions of the channel, which share the statistics; in a
    dense layer u'Hu is the paper's diagonal. The forms are estimated from products of the Hessian
    with u and 1 under a random sign for each sample and unit.

    Args:
        loss_of_perturbations: the mean loss of the samples, as a function of a pytree like
            ``normalized`` that is added to each layer's pre-activations *after* scale and bias.
            Samples must not interact: normalize with the population's statistics.
        normalized: u = (h - mu) / sigma of each layer, (samples, *positions, units).
        batch_size: M, the number of values behind each batch statistic to be imitated: samples, in
            a convolution times the number of independent positions; a number, or a pytree prefix of
            numbers and arrays of one value per unit.
        key: a PRNG key for the signs.
        probes: the number of draws that are averaged. Each takes two Hessian products, the time of
            some four gradients; the error per unit falls with the root of their number.
        excess_kurtosis: rho of each unit's distribution, 0 for a Gaussian; as ``batch_size``.
        nonnegative: if True, negative strengths (a saddle) are clipped to 0, after averaging.
        axis_name: under pmap or shard_map, the mapped axis over which strengths are averaged.

    Returns:
        A pytree of the same structure, with one strength per unit in float32 or wider; unbiased
        unless clipped, of either sign, and a constant for differentiation.

    Raises:
        ValueError: for settings that are no pytree prefix of ``normalized``, or out of range.

    Under jit the samples are the whole batch, however it is sharded. Under pmap and shard_map they
    are the device's own (and the loss must be the device's own mean); ``axis_name`` averages, and
    gives each device its own signs. ReLU has no curvature where it is differentiable: the part of
    its kink, which a pre-activation may cross, is not in H.

    Example:
        >>> u = jnp.array([[1.0], [-1.0]])
        >>> loss = lambda shift: jnp.square(2 * u + shift).mean() / 2
        >>> zeta = gamma_decay_strength(loss, u, 10, key=jax.random.key(0))
        >>> [round(float(value), 4) for value in zeta]  # (1/2) (2/40 + 1/10)
        [0.075]

    Source: Luo et al. 2019, appendix C.4. Erratum: the diagonal of the Hessian, as printed, is
    right for dense layers only; on a convolution it had the wrong sign.
    """

    def perturbation(u: Values, a: Values, b: Values) -> Values:
        a, b = (jnp.expand_dims(x, range(1, u.ndim - 1)) for x in (a, b))
        return (a * promote(u) + b).astype(u.dtype)

    def loss(a: PyTree, b: PyTree) -> Float[Array, ""]:
        return loss_of_perturbations(jax.tree.map(perturbation, normalized, a, b))

    # The zeros of the first position are sharded as the samples are.
    zeros = jax.tree.map(lambda u: jnp.zeros_like(promote(u[:, *(0,) * (u.ndim - 2)])), normalized)
    return _curvature_strength(
        loss, zeros, batch_size, excess_kurtosis, nonnegative, key, probes, axis_name
    )


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
    """Strength of `gamma_decay_strength`, from the curvature in gamma and beta.

    A unit's h = gamma k + beta, k of mean mu and standard deviation s. Statistics of M samples
    instead of the population's move h by gamma s (a u + b), u = (k - mu) / s, a ~ (0,
    (rho + 2) / (4 M)) and b ~ (0, 1 / M): equivalent to noise on gamma and beta that all samples
    share. So zeta = 1/2 [(rho + 2) / (4 M) D_a + (1 / M) D_b], with the second derivatives of the
    mean loss D_a along (gamma, beta) = (1, -mu) and D_b along (0, s). They are estimated from
    Hessian products under a random sign for each sample and unit.

    Args:
        loss: ``loss(scales, biases, sample)`` of one sample, or the mean over a part of several,
            with the population's statistics: samples must not interact.
        scales: gamma of each layer, one value per unit.
        biases: beta, of the same structure.
        samples: a pytree of arrays with the samples (or the parts) along axis 0; each has its own
            signs.
        batch_size: M, as in `gamma_decay_strength`; in a convolution times the number of
            independent positions, which `independent_positions` estimates.
        key: a PRNG key for the signs.
        means: mu of each unit; a number or a pytree prefix. 0 after population normalization; of
            weight normalization the mean of v'x / ||v||.
        stddevs: s, likewise; 1 after population normalization.
        probes: the number of draws that are averaged; two Hessian products each.
        excess_kurtosis: rho of each unit's distribution, 0 for a Gaussian.
        nonnegative: if True, negative strengths are clipped to 0, after averaging.
        axis_name: under pmap or shard_map, the mapped axis over which strengths are averaged.

    Returns:
        A pytree of the structure of ``scales``, in float32 or wider, as `gamma_decay` takes it; a
        constant for differentiation.

    Raises:
        ValueError: for biases of another structure than the scales, and for settings that are no
            pytree prefix of the scales, or out of range.

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
    mu = _per_leaf(means, scales, "means", FINITE)
    s = _per_leaf(stddevs, scales, "stddevs", NONNEGATIVE)

    def sample_loss(a: PyTree, b: PyTree, sample: PyTree) -> Float[Array, ""]:
        moved_biases = jax.tree.map(
            lambda bias, a, b, mu, s: _moved(bias, s * b - mu * a), biases, a, b, mu, s
        )
        return loss(jax.tree.map(_moved, scales, a), moved_biases, sample)

    def mean_loss(a: PyTree, b: PyTree) -> Float[Array, ""]:
        return jax.vmap(sample_loss)(a, b, samples).mean()

    count = len(jax.tree.leaves(samples)[0])
    zeros = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), wide_dtype(x.dtype)), scales)
    return _curvature_strength(
        mean_loss, zeros, batch_size, excess_kurtosis, nonnegative, key, probes, axis_name
    )


def _curvature_strength(
    loss: PairLoss,
    zeros: PyTree,
    batch_size: Setting,
    excess_kurtosis: Setting,
    nonnegative: bool,
    key: Array,
    probes: int,
    axis_name: Hashable | None,
) -> PyTree:
    """Zeta = 1/2 [(rho + 2) / (4 M) D_a + (1 / M) D_b] per unit.

    ``loss(a, b)`` is the mean loss if each sample's normalized pre-activation u is moved, after the
    affine, by a u + b; a and b are trees of (samples, units), as ``zeros`` is. D_a and D_b are the
    sums over samples of the second derivatives along a and b.
    """
    check_number(probes, POSITIVE, "probes", "1 for example")
    rho = _per_leaf(excess_kurtosis, zeros, "excess_kurtosis", FINITE)
    sizes = _per_leaf(batch_size, zeros, "batch_size", POSITIVE)
    if axis_name is not None:
        key = jax.random.fold_in(key, jax.lax.axis_index(axis_name))

    def strength(D_a: Any, D_b: Any, rho: Any, size: Any) -> Float[Array, " units"]:
        rho, size = (jnp.asarray(setting, D_a.dtype) for setting in (rho, size))
        result = ((rho + 2) / 4 * D_a.mean(0) + D_b.mean(0)) / (2 * size)
        average = result if axis_name is None else jax.lax.pmean(result, axis_name)
        return jax.lax.stop_gradient(jnp.maximum(average, 0) if nonnegative else average)

    return jax.tree.map(strength, *_curvatures(loss, zeros, key, probes), rho, sizes)


def _curvatures(loss: PairLoss, zeros: PyTree, key: Array, probes: int) -> tuple[PyTree, PyTree]:
    """D_a and D_b, (probes, units): random signs cancel products of two units on average."""

    def along(signs: PyTree, f: Callable[[PyTree], Any]) -> PyTree:
        products = jax.jvp(jax.grad(f), (zeros,), (signs,))[1]
        return jax.tree.map(lambda sign, product: (sign * product).sum(0), signs, products)

    def probe(key: Array) -> tuple[PyTree, PyTree]:
        signs = optax.tree.random_like(key, zeros, jax.random.rademacher)
        D_a = along(signs, lambda a: loss(a, zeros))
        return D_a, along(signs, lambda b: loss(zeros, b))

    curvatures: tuple[PyTree, PyTree] = jax.lax.map(probe, jax.random.split(key, probes))
    return curvatures


def _moved(parameter: Values, change: Values) -> Values:
    return parameter + change.astype(parameter.dtype)


def _per_leaf(setting: Setting, tree: PyTree, name: str, allowed: Range) -> PyTree:
    """Setting of each leaf, from a pytree prefix; checks numbers, and trusts measured arrays."""
    per_leaf = broadcast(setting, tree, name)
    for path, value in named_leaves(per_leaf):
        if not is_absent(value) and not np.ndim(value):
            check_number(value, allowed, name, "or a pytree prefix of numbers", repr(path))
    return per_leaf
