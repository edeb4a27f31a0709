"""A model of Linen or Equinox, where an NNX module is wanted: the error says what to do instead."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

import jaxnorm.nnx


class Linen(nn.Module):
    """With batch normalization, as its owner has it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Of what there is to take out, nothing is a module of NNX."""
        return nn.BatchNorm(use_running_average=True)(nn.Dense(4)(x))


X = jnp.ones((2, 3))
TAKERS = {
    "functionalize": jaxnorm.nnx.functionalize,
    "layout": jaxnorm.nnx.layout,
    "replace_batch_norm": lambda model: jaxnorm.nnx.replace_batch_norm(model, X),
    "fold_batch_norm": lambda model: jaxnorm.nnx.fold_batch_norm(model, X),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
@pytest.mark.parametrize(
    "model", [Linen(), eqx.nn.Linear(3, 4, key=jax.random.key(0))], ids=["linen", "equinox"]
)
def test_says_what_to_do_instead(take: Callable[[Any], Any], model: Any) -> None:
    with pytest.raises(TypeError, match=rf"{type(model).__name__}.*NNX.*traced_layout"):
        take(model)
