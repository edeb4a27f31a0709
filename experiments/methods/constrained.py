"""Constraints on kernels as edits of the update, which leave the optimizer to the user."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods.part import Context, Optimizer, Part


@dataclass(frozen=True)
class Sphere(Part):
    """Keeps each unit's

    w

    ^2, and its mean at zero if ``centered``.

    Attributes:
        squared_radius: the value of ||w||^2.
        centered: if True, weights are also zero-mean.
        tangent: if True, the part of an update along the weights is removed first.
    """

    squared_radius: float = 2.0
    centered: bool = True
    tangent: bool = False

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Projects the initial parameters onto the set."""
        return self.projected(params, context)

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Projects each unit to the nearest point of the set."""
        return jaxnorm.project(
            raw,
            layout=context.layout,
            squared_radius=self.squared_radius,
            centered=self.centered,
        )

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Appends the projection onto the set."""
        projection = jaxnorm.sphere_projection(
            layout=context.layout,
            squared_radius=self.squared_radius,
            centered=self.centered,
            tangent=self.tangent,
        )
        if self.centered and context.adaptive:
            # Under SGD, momentum and decay the projection alone gives the same weights.
            return optax.chain(jaxnorm.centered_gradient(context.layout), optimizer, projection)
        return optax.chain(optimizer, projection)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest value of `jaxnorm.constraint_drift` for this set."""
        drift = jaxnorm.constraint_drift(
            raw, layout=context.layout, squared_radius=self.squared_radius
        )
        radius = drift["squared_norm"]
        return jnp.maximum(radius, drift["sum"]) if self.centered else radius


@dataclass(frozen=True)
class Centered(Part):
    """Keeps each unit's weights zero-mean."""

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Centres kernels; `centered_gradient` centres a kernel like a gradient."""
        centring = jaxnorm.centered_gradient(context.layout)
        return centring.update(params, centring.init(params))[0]

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Centres updates, which keeps zero-mean weights zero-mean."""
        centring = jaxnorm.centered_gradient(context.layout)
        if context.adaptive:
            return optax.chain(centring, optimizer, centring)
        return optax.chain(optimizer, centring)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest sum of a unit's weights."""
        return jaxnorm.constraint_drift(raw, layout=context.layout)["sum"]


@dataclass(frozen=True)
class ClippedByLayer(Part):
    """Clips the gradient of each layer.

    Attributes:
        clip: the largest norm of a layer's gradient; 0 clips nothing, as the paper.
    """

    clip: float = 1.0

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
