"""Constraints on the first layer alone, or on all other layers."""

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.errors import UserError
from experiments.methods.part import Context, Optimizer, Part
from experiments.methods.paths import by_path
from experiments.methods.reparametrized import logits_of


@dataclass(frozen=True)
class Only(Part):
    """Restricts a part of constrained kernels to some of them.

    Attributes:
        part: the part, of which the hooks parameters, optimizer and drift are used.
        first: if True, kernels that multiply the inputs themselves; otherwise all others.
    """

    part: Part
    first: bool

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Applies the part to these kernels."""
        return self.part.parameters(params, self._restricted(context), X)

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Applies the part to these kernels."""
        return self.part.optimizer(optimizer, self._restricted(context), seed)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""] | None:
        """Applies the part to these kernels."""
        return self.part.drift(raw, self._restricted(context))

    def _restricted(self, context: Context) -> Context:
        x = jax.ShapeDtypeStruct((2, *context.shape), jnp.float32)
        logits, params = logits_of(context, train=False), context.functional.params
        named = by_path(jaxnorm.first_layer(logits, params, x))
        if not any(named.values()):
            raise UserError(
                "no kernel multiplies the network's inputs themselves, so it has no first "
                "layer to be left free; wanted a method without -first-free."
            )
        names = [name for name, first in named.items() if first != self.first]
        hidden = (f"^{re.escape(name)}(/|$)" for name in names)
        return context._replace(layout=jaxnorm.exclude(*hidden, layout=context.layout))
