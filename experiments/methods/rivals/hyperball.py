"""Hyperball: each kernel keeps its Frobenius norm, and moves by a step of fixed relative length.

Wen, Dang, Lyu, Ma and Liang 2026, "Fantastic pretraining optimizers and where to find them II:
Hyperball optimization" (arXiv 2606.16899).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

import jaxnorm
from experiments.methods.part import Context, Optimizer, Part
from jaxnorm import Layout, map_kernels


@dataclass(frozen=True)
class Hyperball(Part):
    """Updates as long as the learning rate times the kernel, and kernels of their initial norm."""

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """The optimizer of the comparison, momentum included, with the schedule as the length."""
        if context.schedule is None:
            raise ValueError("Hyperball needs the context's schedule, and got None.")
        return hyperball(optimizer, context.layout, context.schedule)


def hyperball(
    optimizer: Optimizer, layout: Layout, relative: float | Callable[[Array], Array]
) -> Optimizer:
    """The optimizer, then updates of a fixed length, then the sphere of each kernel."""
    step = jaxnorm.fixed_step(relative, layout=layout, per="kernel")
    projection = jaxnorm.sphere_projection(
        layout=whole_kernels(layout), squared_radius=None, centered=False
    )
    return optax.chain(without_decay(optimizer, layout), step, projection)


def whole_kernels(layout: Layout) -> Layout:
    """The layout for which a whole kernel is one unit."""

    def whole(params: PyTree) -> PyTree:
        def all_axes(leaf: Any, axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if axes is None else tuple(range(-len(leaf.shape), 0))

        return jax.tree.map(all_axes, params, layout(params))

    return whole


def without_decay(optimizer: Optimizer, layout: Layout) -> Optimizer:
    """The optimizer without weight decay of the kernels, whose norms are fixed instead of it."""

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        # Weight decay is all that optimizers read parameters for.
        zeros = map_kernels(lambda kernel, axes: jnp.zeros_like(kernel), layout, params)
        return optimizer.update(updates, state, zeros)

    return optax.GradientTransformation(optimizer.init, update)
