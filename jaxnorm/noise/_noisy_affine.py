"""A noisy scale and a bias, whose gradients are made of one array."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

#: The least size of 1 + n: noise that takes a whole product away leaves a millionth of it.
LEAST = 1e-6


def noisy_affine(
    x: Float[Array, "..."], factor: Float[Array, "..."], bias: Float[Array, "..."] | None
) -> Float[Array, "..."]:
    """(1 + n) x + beta.

    With g pulled back, the gradient of x is g (1 + n), and that of beta the sum of g. Left to
    itself JAX makes both out of g, which compilers then write beside g (1 + n): on a TPU a step of
    float32 convolutions moves half as many bytes again. Here the gradient of beta is the sum of
    g (1 + n) / (1 + n).

    Args:
        x: a product of weights.
        factor: 1 + n, of the rank of ``x``; it has no gradient.
        bias: beta, of that rank; None for none.
    """
    if bias is None:
        return x * factor
    factor = jnp.where(jnp.abs(factor) < LEAST, LEAST, factor)
    return _affine(x, factor, jnp.broadcast_to(bias, x.shape))


@jax.custom_vjp
def _affine(x: Array, factor: Array, bias: Array) -> Array:
    return x * factor + bias


def _forward(x: Array, factor: Array, bias: Array) -> tuple[Array, Array]:
    return x * factor + bias, factor


def _backward(factor: Array, pulled: Array) -> tuple[Array, None, Array]:
    by_x = pulled * factor
    return by_x, None, by_x / factor


_affine.defvjp(_forward, _backward)
