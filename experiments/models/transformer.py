"""A decoder-only transformer, which predicts each character from those before it."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Num

from experiments.errors import UserError
from experiments.models.group_norm import GroupNorm
from experiments.models.norms import MakeNorm
from experiments.models.sizes import NetworkSizes
from experiments.models.style import Style

#: The number of attention heads.
HEADS = 4

Tokens = Float[Array, "rows length width"]


class Tokenwise(nnx.Module):
    """A normalizer of each token alone, so that no token depends on later ones."""

    def __init__(self, norm: nnx.Module):
        self.norm = norm

    def __call__(self, x: Tokens) -> Tokens:
        return self.norm(x.reshape(-1, x.shape[-1])).reshape(x.shape)


class TransformerBlock(nnx.Module):
    """x + a attention(norm(x)), then x + b mlp(norm(x)).

    Args:
        width: the units of a token; the hidden layer of the mlp has four times as many.
        style: the normalizer before each branch, and the activation of the mlp.
        factor: the initial value of a and b, which are learned.
        rngs: the random streams of the initial parameters.
    """

    def __init__(self, width: int, style: Style, factor: float, rngs: nnx.Rngs):
        self.norm1, self.norm2 = (norm_of(style.norm, width, rngs) for _ in range(2))
        self.attention = nnx.MultiHeadAttention(HEADS, width, decode=False, rngs=rngs)
        options: dict[str, Any] = {"kernel_init": style.kernel_init, "rngs": rngs}
        self.first = nnx.Linear(width, 4 * width, **options)
        self.second = nnx.Linear(4 * width, width, **options)
        self.activation = style.activation
        self.factors = nnx.Param(jnp.full(2, factor))
        self.add = style.add

    def __call__(self, x: Tokens, mask: Array | None = None) -> Tokens:
        a, b = self.factors[...]
        x = self.add(x, a * self.attention(normed(self.norm1, x), mask=mask))
        hidden = self.activation(self.first(normed(self.norm2, x)))
        return self.add(x, b * self.second(hidden))


class Transformer(nnx.Module):
    """Embedding and positions, blocks, a normalizer, a classifier of the next token.

    The factors of the branches start at one over the root of their number, so that all branches
    together add about as much variance as the stream has.

    Args:
        sizes: (length,) of a sequence; the number of tokens; the number of blocks, and the units of
            a token, a multiple of four.
        style: normalizers and activation of every block.
        rngs: the random streams of the initial parameters.
        factor: another initial value of the branches' factors.
    """

    def __init__(
        self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs, factor: float | None = None
    ):
        check_sizes(sizes)
        shape, num_classes, width = sizes.shape, sizes.num_classes, sizes.width
        self.embedding = embedding(num_classes, width, rngs)
        self.positions = embedding(shape[0], width, rngs)
        self.blocks = nnx.List(blocks(sizes, style, rngs, factor))
        self.last = norm_of(style.norm, width, rngs)
        self.head = nnx.Linear(width, num_classes, rngs=rngs)

    def __call__(self, x: Num[Array, "rows length"]) -> Float[Array, "rows length classes"]:
        tokens = x.astype(jnp.int32)
        mask = nnx.make_causal_mask(tokens, dtype=bool)
        x = self.embedding(tokens) + self.positions(jnp.arange(tokens.shape[1]))[None]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(normed(self.last, x))


def blocks(
    sizes: NetworkSizes, style: Style, rngs: nnx.Rngs, factor: float | None = None
) -> list[TransformerBlock]:
    """Makes the blocks of a network, with the initial factors of `Transformer`."""
    quiet = 1.0 if style.preserve_magnitude else (2 * sizes.depth) ** -0.5
    start = quiet if factor is None else factor
    return [TransformerBlock(sizes.width, style, start, rngs) for _ in range(sizes.depth)]


def embedding(count: int, width: int, rngs: nnx.Rngs) -> nnx.Embed:
    """Makes an embedding whose vectors have the type of the weights at the time of the lookup.

    Flax's default keeps the type of its creation, and so would all later activations.
    """
    layer = nnx.Embed(count, width, rngs=rngs)
    layer.dtype = None
    return layer


def check_sizes(sizes: NetworkSizes) -> None:
    """Raises UserError for inputs that are not tokens, or a width that the heads do not divide."""
    if len(sizes.shape) != 1:
        raise UserError(
            f"transformer got rows of shape {sizes.shape}; wanted sequences of tokens: take "
            "--dataset python, or --model patches for images."
        )
    check_heads("transformer", sizes)


def check_heads(model: str, sizes: NetworkSizes) -> None:
    """Raises UserError for a width that the heads do not divide."""
    if sizes.width % HEADS:
        raise UserError(f"{model} got --width {sizes.width}; wanted one that {HEADS} divides.")


def norm_of(make: MakeNorm | None, width: int, rngs: nnx.Rngs) -> nnx.Module | None:
    """Makes the normalizer of tokens of ``width`` units, or None."""
    if make is None:
        return None
    norm = make(width, rngs=rngs)
    return Tokenwise(norm) if isinstance(norm, GroupNorm) else norm


def normed(norm: nnx.Module | None, x: Tokens) -> Tokens:
    """Normalizes tokens, if there is a normalizer."""
    return x if norm is None else norm(x)
