"""A constraint of the first layer alone, or of all the others."""

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
    """A part of constrained kernels, which sees some of them alone.

    Attributes:
        part: it; of its hooks those of parameters, of the optimizer and of the drift count.
        first: whether it sees those that are multiplied with the inputs themselves, or the others.
    """

    part: Part
    first: bool

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """The part's, of these kernels."""
        return self.part.parameters(params, self._seen(context), X)

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """The part's, of these kernels."""
        return self.part.optimizer(optimizer, self._seen(context), seed)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""] | None:
        """The part's, of these kernels."""
        return self.part.drift(raw, self._seen(context))

    def _seen(self, context: Context) -> Context:
        x = jax.ShapeDtypeStruct((2, *context.shape), jnp.float32)
        logits, params = logits_of(context, train=False), context.functional.params
        named = by_path(jaxnorm.first_layer(logits, params, x))
        if not any(named.values()):
            raise UserError(
                "the network multiplies its inputs themselves by no kernel, so it has no first "
                "layer to be left free; wanted a method without -first-free."
            )
        names = [name for name, first in named.items() if first != self.first]
        hidden = (f"^{re.escape(name)}(/|$)" for name in names)
        return context._replace(layout=jaxnorm.exclude(*hidden, layout=context.layout))
