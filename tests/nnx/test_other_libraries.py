"""Models of Linen or Equinox in the place of an NNX module are refused, with the way out."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

import jaxnorm.nnx


class Linen(nn.Module):
    """Linen model with batch normalization."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Normalizes by running statistics."""
        return nn.BatchNorm(use_running_average=True)(nn.Dense(4)(x))


X = jnp.ones((2, 3))
FUNCTIONS = {
    "functionalize": jaxnorm.nnx.functionalize,
    "layout": jaxnorm.nnx.layout,
    "replace_batch_norm": lambda model: jaxnorm.nnx.replace_batch_norm(model, X),
    "fold_batch_norm": lambda model: jaxnorm.nnx.fold_batch_norm(model, X),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize(
    "model", [Linen(), eqx.nn.Linear(3, 4, key=jax.random.key(0))], ids=["linen", "equinox"]
)
def test_the_error_names_the_way_out(function: Callable[[Any], Any], model: Any) -> None:
    with pytest.raises(TypeError, match=rf"{type(model).__name__}.*NNX.*traced_layout"):
        function(model)
