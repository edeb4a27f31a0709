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
    """Kernels of constant Frobenius norm, and updates of the learning rate times that norm."""

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Rescales the update of the optimizer to the schedule, and projects the kernels."""
        if context.schedule is None:
            raise ValueError("Hyperball needs the context's schedule, and got None.")
        return hyperball(optimizer, context.layout, context.schedule)


def hyperball(
    optimizer: Optimizer, layout: Layout, relative: float | Callable[[Array], Array]
) -> Optimizer:
    """Returns the optimizer followed by steps of a fixed length and by the projection."""
    step = jaxnorm.fixed_step(relative, layout=layout, per="kernel")
    projection = jaxnorm.sphere_projection(
        layout=whole_kernels(layout), squared_radius=None, centered=False
    )
    return optax.chain(without_decay(optimizer, layout), step, projection)


def whole_kernels(layout: Layout) -> Layout:
    """Returns the layout in which each whole kernel is one unit."""

    def whole(params: PyTree) -> PyTree:
        def all_axes(leaf: Any, axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if axes is None else tuple(range(-len(leaf.shape), 0))

        return jax.tree.map(all_axes, params, layout(params))

    return whole


def without_decay(optimizer: Optimizer, layout: Layout) -> Optimizer:
    """Returns the optimizer without weight decay of the kernels, whose norms are fixed."""

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        # The optimizers of the comparison read the parameters for weight decay only.
        zeros = map_kernels(lambda kernel, axes: jnp.zeros_like(kernel), layout, params)
        return optimizer.update(updates, state, zeros)

    return optax.GradientTransformation(optimizer.init, update)
