"""Activations that are shaped for the network's depth, and orthogonal initial weights."""

import math
from dataclasses import dataclass

import jax
from jaxtyping import Array, PyTree

import jaxnorm
from experiments.methods.part import Context, Part
from experiments.methods.reparametrized import subsample
from experiments.models.registry import NetworkStyle, Shape
from experiments.models.style import ACTIVATIONS


@dataclass(frozen=True)
class Shaped(Part):
    """Activations shaped for the depth, on weights of variance 1 / fan-in.

    Attributes:
        by: how.
    """

    by: Shape

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Returns the style with shaped activations."""
        return style._replace(shaped=self.by)


@dataclass(frozen=True)
class Orthogonal(Part):
    """Orthogonal initial weights that keep the variance of their inputs under the activation."""

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns orthogonal kernels, times sqrt(2) before rectifiers that are not shaped."""
        rectifies = ACTIVATIONS[context.style.activation] in (jax.nn.relu, jax.nn.leaky_relu)
        gain = math.sqrt(2) if rectifies and context.style.shaped is None else 1.0
        rows = subsample(X, 1)
        return jaxnorm.orthogonal_init(
            jaxnorm.read(context.logits, params, rows), layout=context.kernels, gain=gain
        )
