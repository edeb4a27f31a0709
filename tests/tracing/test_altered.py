"""Kernels that an input changes before their product: no kernels to a layout, and no scales."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import traced_layout

RNG = np.random.default_rng(0)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


KEY = jax.random.key(0)
X, MASK = draw(6, 4), jnp.ones((4, 5))
PARAMS = {"kernel": draw(4, 5), "head": draw(5, 2)}


def dropped(p: Any, key: Any) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 0.5, (4, 5)), p["kernel"] / 0.5, 0)


def dropped_for_each_row(p: Any, x: Any, key: Any) -> jax.Array:
    return jax.vmap(lambda x, key: x @ dropped(p, key))(x, jax.random.split(key, len(x)))


#: The first product of a model, and what it takes beside its rows.
CHANGED: dict[str, tuple[Callable[[Any, Any, Any], Any], Any]] = {
    "a mask": (lambda p, x, mask: x @ (p["kernel"] * mask), MASK),
    "its scale": (lambda p, x, scale: x @ (p["kernel"] * scale), jnp.float32(2)),
    "DropConnect": (lambda p, x, key: x @ dropped(p, key), KEY),
    "a draw a row": (dropped_for_each_row, KEY),
    "noise": (lambda p, x, key: x @ (p["kernel"] + jax.random.normal(key, (4, 5))), KEY),
    "a difference": (lambda p, x, change: x @ (p["kernel"] - 0.1 * change), MASK),
    "a convolution's mask": (
        lambda p, x, mask: jax.lax.conv(
            x[..., None], (p["kernel"] * mask).T[..., None], (1,), "SAME"
        )[..., 0],
        MASK,
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_kernel_that_an_input_changes_is_no_scale(name: str) -> None:
    """It was left free without a word, and the head alone constrained."""
    product, other = CHANGED[name]
    apply = lambda p, x, other: jnp.tanh(product(p, x, other)) @ p["head"]  # noqa: E731
    with pytest.raises(ValueError, match="'kernel' is changed by an input before it is multiplied"):
        traced_layout(apply, PARAMS, X, other)
    layout = traced_layout(apply, PARAMS, X, other, free=["kernel"])
    assert layout(PARAMS) == {"kernel": None, "head": (-2,)}


TOKENS = draw(2, 3, 4)
TABLE = {"head": draw(4, 4), "position": draw(3, 4), "scale": draw(4), "bias": draw(2, 3, 3)}


def attended(p: Any, x: Any) -> jax.Array:
    """Positions, then products of inputs alone: of scaled ones, and of those of a softmax."""
    h = x + p["position"][None]
    h = h / jnp.linalg.norm(h, axis=-1, keepdims=True) * p["scale"][None, None]
    scores = jnp.einsum("btd,bsd->bts", h, h @ p["head"]) + p["bias"]
    return jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores * jnp.einsum("btd,bsd->bts", h, h)), h)


def test_scales_and_positions_are_free_still() -> None:
    free = dict.fromkeys(("position", "scale", "bias"))
    assert traced_layout(attended, TABLE, TOKENS)(TABLE) == {"head": (-2,)} | free
