"""What the compiler says a model costs in evaluation: figures without noise."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx

from jaxnorm.nnx import functionalize


class Cost(NamedTuple):
    flops: float
    bytes_accessed: float


def cost(model: nnx.Module, x: Any) -> Cost:
    """Of the compiled model, as a function of its variables and an input."""
    apply, params, state = functionalize(model)
    return cost_of(lambda *values: apply(*values, train=False)[0], params, state, x)


def cost_of(function: Callable[..., Any], *arguments: Any) -> Cost:
    analysis = jax.jit(function).lower(*arguments).compile().cost_analysis()
    assert analysis["flops"] > 0
    return Cost(analysis["flops"], analysis["bytes accessed"])
