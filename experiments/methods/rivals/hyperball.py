"""Hyperball: each kernel keeps its Frobenius norm, and moves by a step of fixed relative length.

Wen, Dang, Lyu, Ma and Liang 2025, "Fantastic pretraining optimizers and where to find them 2.1:
Hyperball optimization".
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

import jaxnorm
from experiments.methods.kernels import TINY
from experiments.methods.part import Context, Optimizer, Part
from jaxnorm import Layout, map_kernels


@dataclass(frozen=True)
class FrobeniusSphere(Part):
    """Kernels on the sphere of their initial Frobenius norm, gradients of that norm too.

    The optimizer of the comparison stands between the two, momentum and schedule included.
    """

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Sees gradients as long as the kernel, and ends on the sphere."""
        return hyperball(optimizer, context.layout)


def hyperball(optimizer: Optimizer, layout: Layout) -> Optimizer:
    """The optimizer between gradients as long as their kernels and the spheres of these."""
    whole = whole_kernels(layout)
    projection = jaxnorm.sphere_projection(layout=whole, squared_radius=None, centered=False)
    return optax.chain(as_long_as_kernels(layout), optimizer, projection)


def whole_kernels(layout: Layout) -> Layout:
    """The layout for which a whole kernel is one unit."""

    def whole(params: PyTree) -> PyTree:
        def all_axes(leaf: Any, axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if axes is None else tuple(range(-len(leaf.shape), 0))

        return jax.tree.map(all_axes, params, layout(params))

    return whole


def as_long_as_kernels(layout: Layout) -> Optimizer:
    """``g ||W|| / ||g||`` in Frobenius norms, kernel by kernel."""

    def scaled(g: Array, axes: tuple[int, ...], w: Array) -> Array:
        return g * jnp.sqrt((w**2).sum() / jnp.maximum((g**2).sum(), TINY))

    return optax.stateless(lambda updates, params: map_kernels(scaled, layout, updates, params))
