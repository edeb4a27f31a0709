"""Kernels on a set: an edit of the update, which leaves the choice of the optimizer to the user."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods.part import Context, Optimizer, Part


@dataclass(frozen=True)
class Sphere(Part):
    """Each unit's ||w||^2 is kept, and its mean at zero if ``centered``.

    Attributes:
        squared_radius: the value of ||w||^2.
        centered: whether weights are also kept zero-mean.
        tangent: whether the part of an update along the weights is left out first.
    """

    squared_radius: float = 2.0
    centered: bool = True
    tangent: bool = False

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """On the set."""
        return self.projected(params, context)

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Each unit at the nearest point of the set."""
        return jaxnorm.project(
            raw,
            layout=context.layout,
            squared_radius=self.squared_radius,
            centered=self.centered,
        )

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Ends on the set."""
        projection = jaxnorm.sphere_projection(
            layout=context.layout,
            squared_radius=self.squared_radius,
            centered=self.centered,
            tangent=self.tangent,
        )
        if self.centered and context.adaptive:
            # Under SGD, momentum and decay the projection does the same work alone.
            return optax.chain(jaxnorm.centered_gradient(context.layout), optimizer, projection)
        return optax.chain(optimizer, projection)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """The largest of what `jaxnorm.constraint_drift` says of this set."""
        found = jaxnorm.constraint_drift(
            raw, layout=context.layout, squared_radius=self.squared_radius
        )
        radius = found["squared_norm"]
        return jnp.maximum(radius, found["sum"]) if self.centered else radius


@dataclass(frozen=True)
class Centered(Part):
    """Each unit's weights are kept zero-mean."""

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Zero-mean kernels; what is centred is a gradient or a kernel alike."""
        centring = jaxnorm.centered_gradient(context.layout)
        return centring.update(params, centring.init(params))[0]

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """The projection on the set of zero-mean weights: a centred update keeps them there."""
        centring = jaxnorm.centered_gradient(context.layout)
        if context.adaptive:
            return optax.chain(centring, optimizer, centring)
        return optax.chain(optimizer, centring)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """The largest sum of a unit's weights."""
        return jaxnorm.constraint_drift(raw, layout=context.layout)["sum"]


@dataclass(frozen=True)
class ClippedByLayer(Part):
    """No layer's gradient is longer than that.

    Attributes:
        clip: the largest norm of a layer's gradient; 0 clips nothing, as the paper.
    """

    clip: float = 1.0

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Sees clipped gradients."""
        if not self.clip:
            return optimizer
        return optax.chain(jaxnorm.clip_by_layer_norm(self.clip), optimizer)


@dataclass(frozen=True)
class FixedStep(Part):
    """The learning rate is an angle: each unit's update is as long, relative to its weights."""

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Ends with updates of that length, which a projection may follow."""
        if context.schedule is None:
            raise ValueError("a step of fixed length needs the context's schedule, and got None.")
        step = jaxnorm.fixed_step(context.schedule, layout=context.layout)
        return optax.chain(optimizer, step)
