"""Multiplicative noise on scales: which leaves are noisy, and what is drawn for them."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._trees._paths import Path, entries, flat_leaves, is_absent, leaves, listed, rebuild
from jaxnorm._trees._prefix import Setting, check_per_unit, setting_per_leaf
from jaxnorm.reparam._scaled import Scaled

#: A pytree of bools that is a prefix of the parameters, or a function from them to one.
Where = Any

#: The name of the scale in `jaxnorm.nnx.ScaleAndBias`, which no other layer's scale has.
SCALE_LAYER = "channel_scale"

#: 1 + n for each leaf, None where there is no noise.
Factors = list[Float[Array, "..."] | None]


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
    return chosen


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
