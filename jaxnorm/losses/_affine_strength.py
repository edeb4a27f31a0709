"""The strength of gamma decay from the scales and biases of a network, whatever its layers are."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._trees._prefix import Setting, check_per_unit, setting_per_leaf
from jaxnorm.losses._gamma_decay_strength import probe_keys, strengths_of_forms


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
        ValueError: for ``probes`` below 1, biases of another structure than the scales, and
            settings that do not reach a layer.

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
    keys = probe_keys(key, probes, axis_name)
    leaves, structure = jax.tree.leaves(scales), _structure(scales)
    if _structure(biases) != structure:
        raise ValueError(
            f"biases have the structure {_structure(biases)} and scales {structure}; "
            "wanted one bias a scale."
        )
    shifts = [
        (_like(leaf, mean, "a mean"), _like(leaf, stddev, "a standard deviation"))
        for leaf, mean, stddev in zip(
            leaves,
            setting_per_leaf(means, scales, "means"),
            setting_per_leaf(stddevs, scales, "stddevs"),
            strict=True,
        )
    ]
    forms = _forms(loss, scales, biases, samples, shifts, keys)
    return strengths_of_forms(forms, scales, batch_size, excess_kurtosis, axis_name, nonnegative)


def _forms(
    loss: Any, scales: PyTree, biases: PyTree, samples: PyTree, shifts: list[Any], keys: Array
) -> list[tuple[Any, Any]]:
    """(D_a, D_b) of each layer, (probes, units), averaged over samples."""
    structure = _structure(scales)
    count = jax.tree.leaves(samples)[0].shape[0]

    def sample_form(key: Array, sample: PyTree) -> list[tuple[Any, Any]]:
        def along(scaled: list[Any], shifted: list[Any]) -> list[Any]:
            """Each unit's v'Hv, v its own part of a direction."""
            direction = tuple(jax.tree.unflatten(structure, each) for each in (scaled, shifted))
            gradient = jax.grad(lambda point: loss(*point, sample))
            product = jax.jvp(gradient, ((scales, biases),), (direction,))[1]
            of_scales, of_biases = map(jax.tree.leaves, product)
            rows = zip(scaled, of_scales, shifted, of_biases, strict=True)
            return [a * ha + b * hb for a, ha, b, hb in rows]

        signs = _signs(key, jax.tree.leaves(scales))
        by_scale = along(signs, [-mean * s for s, (mean, _) in zip(signs, shifts, strict=True)])
        nothing = [jnp.zeros_like(s) for s in signs]
        by_shift = along(nothing, [std * s for s, (_, std) in zip(signs, shifts, strict=True)])
        return list(zip(by_scale, by_shift, strict=True))

    def probe(key: Array) -> list[tuple[Any, Any]]:
        forms = jax.vmap(sample_form)(jax.random.split(key, count), samples)
        return [(by_scale.mean(0), by_shift.mean(0)) for by_scale, by_shift in forms]

    result: list[tuple[Any, Any]] = jax.lax.map(probe, keys)
    return result


def _like(leaf: Any, setting: Any, name: str) -> Array:
    check_per_unit(setting, leaf.shape, name)
    return jnp.asarray(setting, leaf.dtype)


def _structure(tree: PyTree) -> Any:
    return jax.tree.structure(tree)


def _signs(key: Array, like: list[Any]) -> list[Any]:
    keys = jax.random.split(key, len(like))
    return [
        jax.random.rademacher(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, like, strict=True)
    ]
