"""Normalization propagation: activations that are standardized under a Gaussian."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

import jaxnorm
from experiments.methods.part import Context, Part
from experiments.models.registry import NetworkStyle
from experiments.models.style import ACTIVATIONS
from jaxnorm import jacobian_factor


@dataclass(frozen=True)
class Propagated(Part):
    """Standardizes activations, and compensates their Jacobian by initial scales."""

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Standardizes the activations."""
        return style._replace(standardize=True)

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Divides the scale of every reparametrized kernel by the Jacobian's factor."""
        factor = 1 / jacobian_factor(ACTIVATIONS[context.style.activation])

        def rescaled(entry: PyTree) -> PyTree:
            return entry.rescaled(jnp.float32(factor)) if _is_node(entry) else entry

        return jax.tree.map(rescaled, params, is_leaf=_is_node)


@dataclass(frozen=True)
class StandardizedRectifier(Part):
    """Rectifiers that stay standardized while their biases are learned."""

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Replaces normalizer and activation by such rectifiers."""
        return style._replace(norm="standardized-rectifier", activation="identity")


def _is_node(entry: PyTree) -> bool:
    return isinstance(entry, jaxnorm.Reparametrization)
