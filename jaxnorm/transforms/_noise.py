"""Multiplicative noise on scales: which leaves are noisy, what is drawn, what they are without."""

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, UInt

from jaxnorm._kinds import Scaled
from jaxnorm._numerics import promote
from jaxnorm._trees._constrained import Setting, check_per_unit, is_zero, setting_per_leaf
from jaxnorm._trees._paths import Path, entries, flat_leaves, is_absent, leaves, listed, rebuild

#: A pytree of bools that is a prefix of the parameters, or a function from them to one.
Where = Any

#: The name of the scale in `jaxnorm.nnx.ScaleAndBias`, which no other layer's scale has.
SCALE_LAYER = "channel_scale"

#: 1 + n for each leaf, None where there is no noise.
Factors = list[Float[Array, "..."] | None]

#: |1 + n| below which a changed scale is not divided by it.
NEAR_ZERO = 1e-3


def perturb_scales(
    params: PyTree, stddev: Setting, key: Array, where: Where | None = None
) -> PyTree:
    """The parameters with noisy scales: gamma (1 + n), n ~ N(0, stddev^2), one n a unit.

    The pure form of `noise_injection`, for use inside a loss: differentiating through it gives the
    gradient with respect to the clean gamma.

    Args:
        params: a tree of parameters with reparametrized kernels.
        stddev: sigma; a number, or a pytree prefix of numbers and None (no noise).
        key: a PRNG key; the draw of each leaf depends on it and on the leaf's path alone.
        where: which leaves are noisy, in the place of the default (the ``scale`` of every `Scaled`
            node, and the ``channel_scale`` of `jaxnorm.nnx.ScaleAndBias`): a pytree prefix of
            bools, or a function from the parameters to one.

    Returns:
        A tree of the same structure, shapes and types. Noise is computed in float32 or wider.

    Raises:
        ValueError: if no leaf is noisy, or if stddev is negative.

    One draw serves the whole minibatch. Threefry keys, JAX's default, give the same numbers for any
    sharding; inside shard_map or pmap pass the same key on every device.

    Example:
        >>> node = Scaled.from_kernel(jnp.ones((3, 2)), -2)
        >>> noisy = perturb_scales({"kernel": node}, 0.5, jax.random.key(0))["kernel"]
        >>> bool((noisy.kernel == node.kernel).all()), bool((noisy.scale == node.scale).any())
        (True, False)

    Source: Ikami et al. 2021, Eq. 7. The paper leaves open whether n is drawn per sample; here it
    is one draw a unit and step, as the statistics of a minibatch are.
    """
    return multiply(params, noise_factors(params, noise_per_leaf(params, stddev, where), key))


def noise_per_leaf(params: PyTree, stddev: Setting, where: Where | None) -> list[Setting]:
    """The sigma of each leaf of ``params`` (nodes opened), None where there is no noise."""
    noisy = _noisy(params, where)
    if not any(noisy):
        paths = listed(path for path, _ in leaves(params)) or "(there are none)"
        raise ValueError(
            "no parameter would be noisy: noise goes to the scale of Scaled nodes and to leaves "
            f"named {SCALE_LAYER}, and there is none. The paths are: {paths}. Wrap kernels with "
            "reparametrize(params, Scaled), or say which leaves with where=."
        )
    deviations = setting_per_leaf(stddev, params, "stddev")
    chosen = [sigma if wanted else None for sigma, wanted in zip(deviations, noisy, strict=True)]
    if all(sigma is None for sigma in chosen):
        raise ValueError(
            "stddev is None for every scale that would be noisy, so this would do nothing; give "
            "one of them a number, or leave noise_injection out."
        )
    # No arithmetic where there is no noise.
    return [None if is_zero(sigma) else sigma for sigma in chosen]


def noise_factors(params: PyTree, deviations: list[Setting], key: Array) -> Factors:
    """1 + n for each noisy leaf. The draw depends on the leaf's path, not on its place."""
    rows = zip(leaves(params), deviations, strict=True)
    return [
        None if sigma is None or is_absent(leaf) else _factor(path, leaf, sigma, key)
        for (path, leaf), sigma in rows
    ]


def multiply(tree: PyTree, factors: Factors) -> PyTree:
    """Each leaf times its factor, in the leaf's type; leaves without a factor as they are."""
    rows = zip(flat_leaves(tree), factors, strict=True)
    return rebuild(tree, [times(leaf, factor) for leaf, factor in rows])


def times(leaf: Any, factor: Float[Array, "..."] | None) -> Any:
    """``leaf * factor`` in the leaf's type; the leaf itself without a factor."""
    if factor is None or is_absent(leaf):
        return leaf
    return (promote(leaf, factor) * promote(factor, leaf)).astype(leaf.dtype)


def _factor(path: Path, leaf: Any, sigma: Setting, key: Array) -> Float[Array, "..."]:
    check_per_unit(sigma, leaf.shape, f"the stddev of {path!r}")
    own_key = jax.random.fold_in(key, zlib.crc32(str(path).encode()))
    dtype = promote(leaf).dtype
    return 1 + jnp.asarray(sigma, dtype) * jax.random.normal(own_key, leaf.shape, dtype)


def _noisy(params: PyTree, where: Where | None) -> list[bool]:
    """Whether each leaf is noisy; an absent leaf counts as what it stands for."""
    if where is not None:
        chosen = where(params) if callable(where) else where
        return [bool(value) for value in setting_per_leaf(chosen, params, "where")]
    return [flag for path, entry in entries(params) for flag in _scale_flags(path, entry)]


def _scale_flags(path: Path, entry: Any) -> list[bool]:
    """One flag for each leaf of an entry: true for a scale that stands for a normalization's."""
    if isinstance(entry, Scaled):
        return [False] * (len(flat_leaves(entry)) - 1) + [True]
    return [path.name == SCALE_LAYER] * len(flat_leaves(entry))


class NoiseState(NamedTuple):
    """State of `noise_injection`; arrays only, so that any checkpoint library can keep it.

    Attributes:
        seed: uint32; with the step it determines every draw.
        step: int32, the number of updates so far; the parameters carry the draw of this number.
        clean: the parameters' structure with the clean value of each noisy leaf, MaskedNode
            elsewhere. A copy: dividing by 1 + n would lose gamma where n is near -1.
        noisy: likewise with the values that the last update leads to, which show whether a leaf
            was changed since by someone else.
        inner_state: the state of the wrapped transformation.
    """

    seed: UInt[Array, "..."]
    step: Int[Array, "..."]
    clean: PyTree
    noisy: PyTree
    inner_state: PyTree


def clean_parameters(opt_state: PyTree, params: PyTree) -> PyTree:
    """The parameters without their noise, from wherever in ``opt_state`` the noise state is.

    Args:
        opt_state: the state of an optimizer that holds `noise_injection`, inside any wrapper:
            chain, masked, partition, MultiSteps, apply_if_finite, inject_hyperparams.
        params: the parameters as the optimizer left them.

    Returns:
        ``params`` with every noisy leaf replaced by its clean value, which the state
        keeps and which is therefore exact. If a leaf was changed after the update, its noise is
        divided out.

    Raises:
        ValueError: if there is no noise state in ``opt_state``, or if ``params`` lack a leaf that
            it keeps.

    Example: see `noise_injection`.
    """
    nodes = jax.tree.leaves(opt_state, is_leaf=_is_noise_state)
    states = [node for node in nodes if _is_noise_state(node)]
    if not states:
        raise ValueError(
            "found no state of noise_injection in opt_state, so there is nothing to clean; pass "
            "the state that its init or update returned. Without noise use params as they are."
        )
    _check_paths(states, params)
    for state in states:
        params = restore(params, state)
    return params


def _check_paths(states: list[NoiseState], params: PyTree) -> None:
    """Raises where clean values would find no place, and the noise would stay unseen."""
    paths = [path for path, _ in leaves(params)]
    kept = [path for state in states for path, x in leaves(state.clean) if not is_absent(x)]
    lost = [path for path in kept if path not in paths]
    if lost:
        raise ValueError(
            f"opt_state keeps clean values for {listed(lost)}, which params do not have; their "
            f"paths are: {listed(paths)}. Pass the parameters that this optimizer updates."
        )


def restore(params: PyTree, state: NoiseState) -> PyTree:
    """``params`` with their clean leaves; matched by path, whatever boxes hold them."""
    kept = {
        path: (clean, noisy)
        for (path, clean), noisy in zip(leaves(state.clean), flat_leaves(state.noisy), strict=True)
        if not is_absent(clean)
    }
    return rebuild(
        params,
        [
            leaf if is_absent(leaf) or path not in kept else _clean(leaf, *kept[path])
            for path, leaf in leaves(params)
        ],
    )


def _clean(given: Any, clean: Any, noisy: Any) -> Any:
    """The clean value of a leaf: the kept one, but where the given value is not what was left."""
    new, old, kept = promote(given), promote(noisy), promote(clean)
    rounding = 2 * float(jnp.finfo(clean.dtype).eps) * (jnp.abs(new) + jnp.abs(old))
    is_factor = (jnp.abs(old) > NEAR_ZERO * jnp.abs(kept)) & (kept != 0)
    # Where 1 + n is next to zero, or not known, what was changed is the difference.
    moved = jnp.where(is_factor, new * (kept / jnp.where(is_factor, old, 1)), kept + (new - old))
    is_left = jnp.abs(new - old) <= rounding
    return jnp.where(is_left, clean, moved.astype(clean.dtype))


def _is_noise_state(x: Any) -> bool:
    return isinstance(x, NoiseState)
