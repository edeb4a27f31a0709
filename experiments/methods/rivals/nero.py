"""Nero: divides each unit's gradient by its running size, and keeps weights on a sphere.

Liu, Bernstein, Meister and Yue 2021, "Learning by turning: neural architecture aware optimisation".
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

from experiments.methods.kernels import TINY
from experiments.methods.part import Context, Optimizer, Part
from jaxnorm import Layout, map_kernels


class SizeState(NamedTuple):
    """The running mean of each unit's squared gradient norm, and the number of steps in it."""

    count: Int[Array, ""]  # type: ignore[assignment]  # A tuple's method, as in optax.
    squared: PyTree


@dataclass(frozen=True)
class UnitwiseGradients(Part):
    """Divides each unit's gradient by the root of the running mean of its squared norm.

    The optimizer of the comparison follows, momentum and schedule included; Nero itself has none,
    and multiplies by the norm of the weights, which is the same for all units on the sphere.

    Attributes:
        decay: the decay of the running mean.
    """

    decay: float = 0.999

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Prepends the normalization of gradients."""
        return optax.chain(normalize_units(context.layout, self.decay), optimizer)


def normalize_units(layout: Layout, decay: float) -> Optimizer:
    """Divides by ``sqrt(v)`` per unit, with ``v`` the unbiased running mean of ``|g|^2``."""

    def init(params: PyTree) -> SizeState:
        zeros = map_kernels(
            lambda w, axes: jnp.zeros_like(w.sum(axes, keepdims=True)), layout, params
        )
        return SizeState(jnp.zeros((), jnp.int32), zeros)

    def update(
        updates: PyTree, state: SizeState, params: PyTree | None = None
    ) -> tuple[PyTree, SizeState]:
        squared = map_kernels(
            lambda g, axes, v: decay * v + (1 - decay) * (g**2).sum(axes, keepdims=True),
            layout,
            updates,
            state.squared,
        )
        count = state.count + 1
        unbiased = 1 - decay ** count.astype(jnp.float32)

        def normalized(g: Array, axes: tuple[int, ...], v: Array) -> Array:
            return g * jax.lax.rsqrt(jnp.maximum(v / unbiased, TINY))

        return map_kernels(normalized, layout, updates, squared), SizeState(count, squared)

    return optax.GradientTransformation(init, update)
