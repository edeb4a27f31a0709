"""EDM2: forced weight normalization, between layers that preserve the magnitude of what they get.

Karras, Aittala, Lehtinen, Hellsten, Aila and Laine 2024, "Analyzing and improving the training
dynamics of diffusion models", configurations D to G. The paper's network has a constant input in
the place of biases; here biases stay, and start at zero.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods.kernels import kernel_maximum
from experiments.methods.part import Call, Context, Optimizer, Part, Prepared
from experiments.models.registry import NetworkStyle
from jaxnorm import Reparametrization, WeightNormalized


@dataclass(frozen=True)
class MagnitudePreserving(Part):
    """Activations of mean square 1 under N(0, 1), and sums of branches that keep it."""

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Uses such activations and sums."""
        return style._replace(preserve_magnitude=True)


@dataclass(frozen=True)
class ForcedNorm(Call):
    """Kernels v / ||v||, with v put back to a mean square of 1 after each step (Eqs. 47 and 66).

    So the gradient is orthogonal to v, and a step turns the weights of every layer by as much.
    """

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Adds weight normalization with scales of 1; keeps the norms and the scales."""

        def node(path: str, kernel: Array, axes: tuple[int, ...]) -> Reparametrization:
            fan_in = float(kernel.size // kernel.sum(axes).size)
            direction = jaxnorm.project_to_sphere(kernel, axes, fan_in, centered=False)
            made = WeightNormalized.from_kernel(direction, axes)
            return made.replaced(scale=jnp.ones_like(made.scale))

        raw = jaxnorm.reparametrize(params, node, context.layout)
        projection = jaxnorm.sphere_projection(
            layout=context.layout, squared_radius=None, centered=False
        )
        return raw, optax.chain(optimizer, projection, optax.stateless(without_scales))

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest distance of a unit's mean square from 1."""

        def distance(kernel: Array, axes: tuple[int, ...]) -> Array:
            return jnp.abs(jnp.square(kernel).mean(axes) - 1)

        return kernel_maximum(distance, context.layout, raw)


def without_scales(updates: PyTree, params: PyTree) -> PyTree:
    """Sets the updates of weight normalization's scales to 0."""
    del params

    def fixed(entry: Any) -> Any:
        return entry.replaced(scale=jnp.zeros_like(entry.scale)) if _is_node(entry) else entry

    return jax.tree.map(fixed, updates, is_leaf=_is_node)


def _is_node(entry: Any) -> bool:
    return isinstance(entry, WeightNormalized)
