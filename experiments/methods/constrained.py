"""Constraints on kernels as edits of the update, which leave the optimizer to the user."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods.first_layer import Layers, first_kernels, layout_of
from experiments.methods.part import Call, Context, Optimizer, Part, Prepared
from experiments.methods.scale_noise import LearnedScale, quieted
from experiments.models.registry import NetworkStyle
from jaxnorm import Layout


@dataclass(frozen=True)
class Sphere(Call):
    """`jaxnorm.project` and `jaxnorm.sphere_projection`: units of a fixed norm.

    Attributes:
        squared_radius: the squared norm of each unit.
        centered: if True, weights are also zero-mean.
        tangent: if True, the part of an update along the weights is removed first.
        first_centered: if False, the first layer is on the sphere, and not centered.
    """

    squared_radius: float = 2.0
    centered: bool = True
    tangent: bool = False
    first_centered: bool = True

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Projects the initial parameters, and appends the projection to the optimizer."""
        projection = jaxnorm.sphere_projection(
            layout=self.layout(context),
            squared_radius=self.squared_radius,
            centered=self.centered_kernels(context),
            tangent=self.tangent,
        )
        return self.projected(params, context), optax.chain(optimizer, projection)

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Projects each unit to the nearest point of the set."""
        return jaxnorm.project(
            raw,
            layout=self.layout(context),
            squared_radius=self.squared_radius,
            centered=self.centered_kernels(context),
        )

    def layout(self, context: Context) -> Layout:
        """Returns the layout of the kernels on the sphere."""
        return context.layout

    def centered_kernels(self, context: Context) -> bool | PyTree:
        """Returns the ``centered`` of the library: for all kernels, or a tree."""
        if self.first_centered:
            return self.centered
        return jax.tree.map(lambda first: not first, first_kernels(context))

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest value of `jaxnorm.constraint_drift` that holds for all kernels."""
        radius, layout = self.squared_radius, self.layout(context)
        drift = jaxnorm.constraint_drift(raw, layout=layout, squared_radius=radius)
        if self.centered and self.first_centered:
            return jnp.maximum(drift["squared_norm"], drift["sum"])
        return drift["squared_norm"]


@dataclass(frozen=True)
class Constrained(Sphere):
    """`jaxnorm.constrain`: units on the sphere, with a learned scale and bias.

    In networks with pre-activation the scales are layers, as in `LearnedScale`.
    """

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Adds scale-and-bias layers, in networks with pre-activation."""
        return LearnedScale().style(style)

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Constrains the kernels, unless the scales are layers."""
        if context.style.scale_layers is not None:
            return super().call(params, optimizer, context)
        raw, optimizer = jaxnorm.constrain(
            params,
            optimizer,
            layout=context.layout,
            squared_radius=self.squared_radius,
            centered=self.centered_kernels(context),
        )
        return quieted(raw, params, context), optimizer


@dataclass(frozen=True)
class ZeroSum(Call):
    """`jaxnorm.linearly_constrain`: units whose weights sum to zero."""

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Centers kernels, and appends the centering to the optimizer."""
        return jaxnorm.linearly_constrain(params, optimizer, layout=context.layout)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest sum of a unit's weights."""
        return jaxnorm.constraint_drift(raw, layout=context.layout)["sum"]


@dataclass(frozen=True)
class CenteredGradients(Part):
    """Centers gradients before an adaptive optimizer, whose moments else include their means.

    Under SGD, momentum and weight decay the constraint alone gives the same weights.

    Attributes:
        layers: the layers whose gradients are centered.
    """

    layers: Layers = "all"

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Prepends the centering to an adaptive optimizer."""
        if not context.adaptive:
            return optimizer
        centering = jaxnorm.centered_gradient(layout_of(self.layers, context))
        return optax.chain(centering, optimizer)


@dataclass(frozen=True)
class ClippedByLayer(Part):
    """Clips the gradient of each layer.

    Attributes:
        clip: the largest norm of a layer's gradient; 0 clips nothing.
    """

    clip: float = 1.0

    @property
    def clips(self) -> bool:
        """True if it clips gradients."""
        return bool(self.clip)

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Prepends the clipping."""
        if not self.clip:
            return optimizer
        return optax.chain(jaxnorm.clip_by_layer_norm(self.clip), optimizer)


@dataclass(frozen=True)
class FixedStep(Part):
    """Updates whose length per unit is the learning rate times that of its weights."""

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Rescales the update of the optimizer; a projection may follow."""
        if context.schedule is None:
            raise ValueError("a step of fixed length needs the context's schedule, and got None.")
        step = jaxnorm.fixed_step(context.schedule, layout=context.layout)
        return optax.chain(optimizer, step)
