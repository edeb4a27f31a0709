"""Normalization propagation: activations that are standardized under a Gaussian."""

from dataclasses import dataclass

from jaxtyping import PyTree

import jaxnorm
from experiments.methods.constrained import Sphere
from experiments.methods.part import Context, Optimizer, Part, Prepared
from experiments.models.registry import NetworkStyle
from experiments.models.style import ACTIVATIONS


@dataclass(frozen=True)
class Propagated(Sphere):
    """`jaxnorm.propagate_normalization`: unit norms, learned scales, standardized activations."""

    squared_radius: float = 1.0
    centered: bool = False

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Standardizes the activations."""
        return style._replace(standardize=True)

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Propagates the normalization; the scales start at 1 over the Jacobian's factor."""
        scale = float(1 / jaxnorm.normprop.jacobian_factor(ACTIVATIONS[context.style.activation]))
        return jaxnorm.propagate_normalization(
            params, optimizer, layout=context.layout, scale=scale
        )


@dataclass(frozen=True)
class StandardizedRectifier(Part):
    """Rectifiers that stay standardized while their biases are learned."""

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Replaces normalizer and activation by such rectifiers."""
        return style._replace(norm="standardized-rectifier", activation="identity")
