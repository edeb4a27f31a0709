"""Kernels on the Stiefel manifold: all of a kernel's singular values are equal, and stay so.

Bernstein 2025, "Modular manifolds". Its dual ascent for the steepest step is not done here: the
optimizer's step is projected onto the tangent space, and the weights onto the manifold.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods.kernels import kernel_maximum
from experiments.methods.part import Context, Optimizer, Part


@dataclass(frozen=True)
class Stiefel(Part):
    """Keeps each kernel's singular values at sqrt(c max(1, units / fan-in)).

    Attributes:
        squared_radius: c, the mean squared norm of the units.
    """

    squared_radius: float = 2.0

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Projects the initial parameters onto the manifold."""
        return self.projected(params, context)

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Projects each kernel to the nearest point of the manifold."""

        def nearest(kernel: Array, axes: tuple[int, ...]) -> Array:
            return jaxnorm.project_to_stiefel(kernel, axes, self.squared_radius)

        return jaxnorm.map_kernels(nearest, context.layout, raw)

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Projects steps onto the tangent space, and weights onto the manifold."""
        projection = jaxnorm.stiefel_projection(
            layout=context.layout, squared_radius=self.squared_radius, tangent=True
        )
        return optax.chain(optimizer, projection)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest distance of a weight from its kernel's projection."""

        def distance(kernel: Array, axes: tuple[int, ...], nearest: Array) -> Array:
            return jnp.abs(kernel - nearest)

        return kernel_maximum(distance, context.layout, raw, self.projected(raw, context))
