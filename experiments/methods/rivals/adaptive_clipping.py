"""Adaptive gradient clipping: limits each unit's gradient to a fraction of its weights' norm.

Brock, De, Smith and Simonyan 2021, "High-performance large-scale image recognition without
normalization". As there (section 4.1), the last linear layer is not clipped. Biases are not either:
their code clips a bias that starts at zero at 1e-5 per step.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from experiments.methods.kernels import TINY
from experiments.methods.part import Context, Optimizer, Part
from jaxnorm import map_kernels

#: The least norm of weights that counts, for those that start at zero; the paper's.
LEAST_NORM = 1e-3


@dataclass(frozen=True)
class AdaptivelyClipped(Part):
    """Clips the gradients of hidden kernels unit by unit, but not the classifier's.

    `optax.adaptive_grad_clip` guesses what a unit is from the number of axes; this one knows.

    Attributes:
        clipping: the largest ratio of the two norms.
    """

    clipping: float = 0.16

    @property
    def clips(self) -> bool:
        """True: it clips gradients."""
        return True

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Prepends the clipping."""

        def clipped(g: Array, axes: tuple[int, ...], w: Array) -> Array:
            def norm(x: Array, least: float) -> Array:
                return jnp.sqrt(jnp.maximum((x**2).sum(axes, keepdims=True), least**2))

            most = self.clipping * norm(w, LEAST_NORM)
            return g * jnp.minimum(1, most / norm(g, TINY**0.5))

        def clip(updates: PyTree, params: PyTree) -> PyTree:
            return map_kernels(clipped, context.hidden, updates, params)

        return optax.chain(optax.stateless(clip), optimizer)
