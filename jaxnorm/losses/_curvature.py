"""The strength of gamma decay from second derivatives along random signs, unit by unit."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._trees._prefix import Setting, setting_per_leaf


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
