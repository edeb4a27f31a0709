"""AdamP and SGDP: remove the part of an update along scale-invariant weights.

Heo et al. 2021, "AdamP: slowing down the slowdown for momentum optimizers on scale-invariant
weights".
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from experiments.methods.kernels import TINY
from experiments.methods.part import Context, Optimizer, Part
from jaxnorm import Layout, map_kernels


@dataclass(frozen=True)
class TangentUpdates(Part):
    """Removes the part of updates along each unit's weights if the gradient has none.

    Attributes:
        threshold: the paper's delta: a gradient has such a part if the cosine is above
            delta / sqrt(fan-in).
    """

    threshold: float = 0.1

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Wraps the user's optimizer, whose updates and gradients it reads."""

        def update(gradient: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree]:
            updates, state = optimizer.update(gradient, state, params)
            return self.tangent(updates, gradient, params, context.layout), state

        return optax.GradientTransformation(optimizer.init, update)

    def tangent(self, updates: PyTree, gradient: PyTree, params: PyTree, layout: Layout) -> PyTree:
        """Projects the updates of units whose gradient is nearly orthogonal to the weights."""

        def projected(u: Array, axes: tuple[int, ...], g: Array, w: Array) -> Array:
            def dot(a: Array, b: Array) -> Array:
                return (a * b).sum(axes, keepdims=True)

            fan_in = w.size // dot(w, w).size
            lengths = jnp.maximum(dot(g, g) * dot(w, w), TINY)
            scale_free = dot(g, w) ** 2 * fan_in < self.threshold**2 * lengths
            along = dot(u, w) / jnp.maximum(dot(w, w), TINY)
            return jnp.where(scale_free, u - along * w, u)

        return map_kernels(projected, layout, updates, gradient, params)
