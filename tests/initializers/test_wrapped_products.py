"""A kernel is found wherever its product is: under jit, remat, custom derivatives, vmap, casts."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxnorm import variance_preserving_init
from tests.initializers.models import layers, sigmoid, uniform
from tests.initializers.unit import UNIT, UNIT_BFLOAT16, assert_unit, variances


@jax.custom_vjp
def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return x @ kernel


_product.defvjp(lambda x, k: (x @ k, (x, k)), lambda res, g: (g @ res[1].T, res[0].T @ g))

WRAPPERS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "jit": jax.jit(lambda x, k: x @ k),
    "jit_of_a_closure": lambda x, k: jax.jit(lambda x: x @ k)(x),
    "checkpoint": jax.checkpoint(lambda x, k: x @ k),
    "custom_vjp": _product,
    "vmap_over_samples": lambda x, k: jax.vmap(lambda row: row @ k)(x),
    "kernel_on_the_left": lambda x, k: (k.T @ x.T).T,
    "einsum": lambda x, k: jnp.einsum("ni,io->no", x, k),
    "cast": lambda x, k: (x.astype(jnp.bfloat16) @ k.astype(jnp.bfloat16)).astype(jnp.float32),
    "remat_of_a_jit": jax.checkpoint(jax.jit(lambda x, k: x @ k)),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_whatever_the_product_is_wrapped_in(wrapper: str) -> None:
    params, x, product = layers(depth=3), uniform(20, 64), WRAPPERS[wrapper]

    def model(p: Any, x: Any) -> Any:
        for number in range(3):
            layer = p[f"layer_{number}"]
            x = sigmoid(product(x, layer["kernel"]) + layer["bias"][None])
        return x

    fitted = jax.jit(lambda p: variance_preserving_init(model, p, x))(params)
    assert_unit(variances(fitted, x), UNIT_BFLOAT16 if wrapper == "cast" else UNIT)
