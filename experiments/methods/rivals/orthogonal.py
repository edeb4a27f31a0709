"""Kernels on the Stiefel manifold: all of a kernel's singular values are equal, and stay so.

Bernstein 2025, "Modular manifolds". Its dual ascent for the steepest step is not done here: the
optimizer's step is projected onto the tangent space, and the weights onto the manifold.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods.kernels import kernel_maximum
from experiments.methods.part import Call, Context, Optimizer, Prepared


@dataclass(frozen=True)
class Stiefel(Call):
    """Keeps each kernel's singular values at sqrt(c max(1, units / fan-in)).

    Attributes:
        squared_radius: c, the mean squared norm of the units.
    """

    squared_radius: float = 2.0

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Projects each kernel to the nearest point of the manifold."""

        def nearest(kernel: Array, axes: tuple[int, ...]) -> Array:
            return jaxnorm.project_to_stiefel(kernel, axes, self.squared_radius)

        return jaxnorm.map_kernels(nearest, context.layout, raw)

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Projects initial weights and steps, and the steps onto the tangent space first."""
        projection = jaxnorm.stiefel_projection(
            layout=context.layout, squared_radius=self.squared_radius, tangent=True
        )
        return self.projected(params, context), optax.chain(optimizer, projection)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest distance of a weight from its kernel's projection."""

        def distance(kernel: Array, axes: tuple[int, ...], nearest: Array) -> Array:
            return jnp.abs(kernel - nearest)

        return kernel_maximum(distance, context.layout, raw, self.projected(raw, context))
