"""The first layer, whose inputs are the features themselves, and the layers after it."""

import re
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

import jaxnorm
from experiments.errors import UserError
from experiments.methods.part import Context
from experiments.methods.paths import by_path
from jaxnorm import Layout

#: All layers, those that read the network's inputs, or those that do not.
Layers = Literal["all", "first", "later"]


def layout_of(layers: Layers, context: Context) -> Layout:
    """Returns the layout of the constrained kernels of some layers."""
    if layers == "all":
        return context.layout
    kernels = by_path(first_kernels(context))
    excluded = [path for path, first in kernels.items() if first != (layers == "first")]
    return jaxnorm.exclude(
        *(f"^{re.escape(path)}(/|$)" for path in excluded), layout=context.layout
    )


def first_kernels(context: Context) -> PyTree:
    """Returns True at the kernels that multiply the network's inputs, False elsewhere."""
    x = jax.ShapeDtypeStruct((2, *context.shape), jnp.float32)
    logits = partial(context.logits, train=False)
    first = jaxnorm.first_layer(jaxnorm.read(logits, context.functional.params, x))
    if not any(jax.tree.leaves(first)):
        raise UserError(
            "no kernel multiplies the network's inputs themselves, so it has no first "
            "layer to be left free; wanted a method without -first-free."
        )
    return first
