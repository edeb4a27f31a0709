"""Gamma decay: the explicit part of batch normalization's regularization."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._trees._paths import flat_leaves, is_absent
from jaxnorm._trees._prefix import Setting, check_per_unit, setting_per_leaf


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
