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
EXPERTS = jnp.array([0, 1, 1, 0, 1, 0])
PARAMS = {"kernel": draw(4, 5), "head": draw(5, 2)}


def dropped(p: Any, key: Any) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 0.5, (4, 5)), p["kernel"] / 0.5, 0)


def dropped_for_each_row(p: Any, x: Any, key: Any) -> jax.Array:
    return jax.vmap(lambda x, key: x @ dropped(p, key))(x, jax.random.split(key, len(x)))


def styled(p: Any, style: Any) -> jax.Array:
    """A kernel for each row: one scale an input, and each unit of length 1, as in StyleGAN 2."""
    kernels = p["kernel"][None] * style[:, :, None]
    return kernels / jnp.linalg.norm(kernels, axis=1, keepdims=True)


def convolved(x: Any, kernels: Any) -> jax.Array:
    """Each row with its own kernel: `jax.vmap` reshapes them to those of groups."""
    conv = lambda x, w: jax.lax.conv(x[None, :, None], w.T[..., None], (1,), "SAME")[0, :, 0]  # noqa: E731
    return jax.vmap(conv)(x, kernels)


def in_turns(p: Any, x: Any, mask: Any) -> jax.Array:
    """Two layers of two rows each, masked before they are scanned."""
    stack = (p["kernel"] * mask).reshape(2, 2, 5)
    return jax.lax.scan(lambda h, k: (h + x[:, :2] @ k, None), jnp.zeros((6, 5)), stack)[0]


def in_a_branch(p: Any, x: Any, mask: Any) -> jax.Array:
    return x @ jax.lax.cond(x.sum() > 0, lambda w: w * mask, lambda w: w, p["kernel"])


def adapted(p: Any, x: Any, change: Any) -> jax.Array:
    """Used and changed at each turn, as in MAML, where the change is a gradient."""
    return jax.lax.scan(lambda w, _: (w - 0.1 * change, x @ w), p["kernel"], length=2)[1][-1]


def of_experts(p: Any, x: Any, expert: Any) -> jax.Array:
    """Two kernels, of which each row has its own."""
    return jnp.einsum("bi,bio->bo", x[:, :2], p["kernel"].reshape(2, 2, 5)[expert])


def of_a_part(p: Any, x: Any, place: Any) -> jax.Array:
    """Each row has its own five units of a kernel beside itself."""
    wide = jnp.concatenate([p["kernel"], p["kernel"]], 1)
    own = lambda x, place: x @ jax.lax.dynamic_slice(wide, (0, place), (4, 5))  # noqa: E731
    return jax.vmap(own)(x, place)


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
    "a style": (
        lambda p, x, style: convolved(x, p["kernel"][None] * style[:, :, None]),
        draw(6, 4),
    ),
    "a style, normalized": (lambda p, x, style: convolved(x, styled(p, style)), draw(6, 4)),
    "a stack's mask": (in_turns, MASK),
    "a mask in a branch": (in_a_branch, MASK),
    "a difference in a loop": (adapted, MASK),
    "a choice of one for each row": (of_experts, EXPERTS),
    "a choice of units for each row": (of_a_part, EXPERTS),
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


def test_tables_are_free_still() -> None:
    """Words and positions that are looked up, in products of their own: no kernels, but inputs."""
    params = {"word": draw(7, 4), "place": draw(3, 4), "head": draw(4, 2)}
    tokens, places = jnp.array([[1, 2, 0], [0, 6, 1]]), jnp.array([[0, 1, 2], [2, 1, 0]])

    def apply(p: Any, tokens: Any, places: Any) -> jax.Array:
        h = p["word"][tokens] + p["place"][places]
        h = h / jnp.linalg.norm(h, axis=-1, keepdims=True)
        return jax.nn.softmax(jnp.einsum("btd,bsd->bts", h, h)) @ h @ p["head"]

    free = dict.fromkeys(("word", "place"))
    assert traced_layout(apply, params, tokens, places)(params) == {"head": (-2,)} | free
