"""Derivatives of a model's own, which are those of a pass over its layers too."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import variance_preserving_init
from jaxnorm.losses import collect_preactivations
from tests.tolerances import FLOAT32
from tests.tracing.test_calls import BIASED, PARAMS, X, dense, rounded


@jax.custom_vjp
def halved(x: jax.Array) -> jax.Array:
    """The identity; its gradient is half of what comes back."""
    return x


halved.defvjp(lambda x: (x, None), lambda _, g: (g / 2,))


@jax.custom_vjp
def shifted(h: jax.Array, b: jax.Array) -> jax.Array:
    """A bias that is added with half a gradient."""
    return h + b


shifted.defvjp(lambda h, b: (h + b, None), lambda _, g: (g / 2, g.sum(0, keepdims=True) / 2))


@jax.custom_vjp
def aligned(x: jax.Array, w: jax.Array) -> jax.Array:
    """A product whose error goes back through other weights: feedback alignment."""
    return x @ w


@jax.custom_vjp
def activated(h: jax.Array, b: jax.Array) -> jax.Array:
    """A sum and its activation, with the gradient passed straight through."""
    return jnp.tanh(h + b)


aligned.defvjp(lambda x, w: (x @ w, x), lambda x, g: (0 * x, x.T @ g / 3))
activated.defvjp(lambda h, b: (jnp.tanh(h + b), None), lambda _, g: (g, g.sum(0, keepdims=True)))

#: Models with a derivative of their own, on the kernel, the product, its sum and the bias.
DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "on the kernel": lambda p, x: jnp.tanh(x @ halved(p["kernel"]) + p["bias"][None]),
    "on the product": lambda p, x: jnp.tanh(halved(x @ p["kernel"]) + p["bias"][None]),
    "on the sum": lambda p, x: jnp.tanh(halved(x @ p["kernel"] + p["bias"][None])),
    "of the sum": lambda p, x: jnp.tanh(shifted(x @ p["kernel"], p["bias"][None])),
    "on the bias": lambda p, x: jnp.tanh(x @ p["kernel"] + halved(p["bias"])[None]),
    "of the product": lambda p, x: jnp.tanh(aligned(x, p["kernel"]) + p["bias"][None]),
    "of the product, jitted": lambda p, x: jnp.tanh(
        jax.jit(lambda p, x: aligned(x, p["kernel"]) + p["bias"][None])(p, x)
    ),
    "of the sum and more": lambda p, x: activated(x @ p["kernel"], p["bias"][None]),
    "beside": lambda p, x: dense(p, x) + x @ jnp.tile(rounded(p["bias"])[None], (4, 1)),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_a_model_s_own_are_kept(name: str) -> None:
    """The gradient through a pass over the layers is that of the model."""
    apply = DERIVATIVES[name]
    wanted = jax.grad(lambda p: apply(p, X).sum())(PARAMS)
    got = jax.grad(lambda p: collect_preactivations(apply, p, X)[0].sum())(PARAMS)
    for leaf in PARAMS:
        np.testing.assert_allclose(got[leaf], wanted[leaf], rtol=1e-5, atol=1e-5)


SEEN = ["on the kernel", "on the product", "on the bias", "of the product", "of the sum"]


@pytest.mark.parametrize("name", SEEN)
def test_and_the_preactivations_are_found_behind_them(name: str) -> None:
    _, layers = collect_preactivations(DERIVATIVES[name], PARAMS, X)
    np.testing.assert_allclose(layers["kernel"], BIASED, **FLOAT32)


def test_a_derivative_of_more_than_the_product_is_told_to_be_lost() -> None:
    dense_of_its_own = jax.custom_vjp(lambda p, x: x @ p["kernel"] + p["bias"][None])
    dense_of_its_own.defvjp(
        lambda p, x: (x @ p["kernel"] + p["bias"][None], (p, x)), lambda res, g: res
    )
    with pytest.warns(UserWarning, match=r"kernels kernel are multiplied inside a function.*end"):
        collect_preactivations(dense_of_its_own, PARAMS, X)
    variance_preserving_init(dense_of_its_own, PARAMS, X)  # takes no gradient
