"""The strength of gamma decay in a deep network, from the curvature of the loss."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._trees._prefix import Setting, check_per_unit, setting_per_leaf


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
        ValueError: for ``probes`` below 1, a layer without axes of samples and units, and settings
            that do not reach a layer, or have another shape.

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
    keys = probe_keys(key, probes, axis_name)
    directions = [_checked(leaf) for leaf in jax.tree.leaves(normalized)]
    structure = jax.tree.structure(normalized)
    curvature = _curvature(loss_of_perturbations, directions, structure)

    def probe(key: Array) -> list[tuple[Any, Any]]:
        signs = _signs(key, directions)
        scaled = [u * sign for u, sign in zip(directions, signs, strict=True)]
        shifted = [jnp.broadcast_to(s, u.shape) for u, s in zip(directions, signs, strict=True)]
        return list(zip(curvature(scaled), curvature(shifted), strict=True))

    forms = jax.lax.map(probe, keys)
    return strengths_of_forms(
        forms, normalized, batch_size, excess_kurtosis, axis_name, nonnegative
    )


def _checked(u: Any) -> Float[Array, "samples ... units"]:
    if u.ndim < 2:
        raise ValueError(
            f"a normalized pre-activation has the shape {tuple(u.shape)}; wanted (samples, units) "
            "or (samples, *positions, units)."
        )
    result: Float[Array, "samples ... units"] = jax.lax.stop_gradient(u)
    return result


def _curvature(loss: Callable[[PyTree], Any], like: list[Any], structure: Any) -> Any:
    """``directions -> v'Hv per unit``, H the Hessian of the mean loss at no perturbation."""
    gradient = jax.grad(lambda leaves: loss(jax.tree.unflatten(structure, leaves)))

    def form(directions: list[Any]) -> list[Any]:
        zeros = [jnp.zeros_like(u) for u in like]
        products = jax.jvp(gradient, (zeros,), (directions,))[1]
        return [_per_unit(v, hv) for v, hv in zip(directions, products, strict=True)]

    return form


def _per_unit(v: Any, hv: Any) -> Float[Array, " units"]:
    """What a unit's own direction contributes: the signs cancel the other units' on average."""
    return (promote(v) * promote(hv)).sum(tuple(range(v.ndim - 1)))


def _signs(key: Array, like: list[Any]) -> list[Any]:
    """A sign for each sample and unit, the same at all positions."""
    shapes = [(u.shape[0], *[1] * (u.ndim - 2), u.shape[-1]) for u in like]
    keys = jax.random.split(key, len(like))
    return [
        jax.random.rademacher(k, shape, u.dtype)
        for k, shape, u in zip(keys, shapes, like, strict=True)
    ]


def probe_keys(key: Array, probes: int, axis_name: Hashable | None) -> Array:
    """A key for each probe, and under pmap and shard_map for each device."""
    if probes < 1:
        raise ValueError(f"probes={probes}; wanted at least 1.")
    if axis_name is not None:
        key = jax.random.fold_in(key, jax.lax.axis_index(axis_name))
    return jax.random.split(key, probes)


def strengths_of_forms(
    forms: list[tuple[Any, Any]],
    layers: PyTree,
    batch_size: Setting,
    excess_kurtosis: Setting,
    axis_name: Hashable | None,
    nonnegative: bool,
) -> PyTree:
    """The second-order forms of each layer's scales and shifts, (probes, units), put together."""
    kurtoses = setting_per_leaf(excess_kurtosis, layers, "excess_kurtosis")
    sizes = setting_per_leaf(batch_size, layers, "batch_size")
    strengths = [
        _strength(form, rho, size, axis_name, nonnegative)
        for form, rho, size in zip(forms, kurtoses, sizes, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(layers), strengths)


def _strength(
    form: tuple[Any, Any], rho: Any, size: Any, axis_name: Hashable | None, nonnegative: bool
) -> Float[Array, " units"]:
    by_scale, by_shift = (each.mean(0) for each in form)
    check_per_unit(rho, by_scale.shape, "an excess kurtosis")
    check_per_unit(size, by_scale.shape, "a batch size")
    fourth = (jnp.asarray(rho, by_scale.dtype) + 2) / 4
    strength = (fourth * by_scale + by_shift) / 2 / jnp.asarray(size, by_scale.dtype)
    average = strength if axis_name is None else jax.lax.pmean(strength, axis_name)
    return jax.lax.stop_gradient(jnp.maximum(average, 0) if nonnegative else average)
