"""Flax NNX: a vision Transformer."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

import jaxnorm.nnx
from tests.models.model import CLASSES, IMAGES, Model


class EncoderBlock(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.norm1, self.norm2 = (nnx.LayerNorm(width, rngs=rngs) for _ in range(2))
        self.attn = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.mlp = nnx.Sequential(
            nnx.Linear(width, 2 * width, rngs=rngs),
            nnx.gelu,
            nnx.Dropout(0.1, rngs=rngs),
            nnx.Linear(2 * width, width, rngs=rngs),
        )

    def __call__(self, x: Any) -> Any:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, width: int = 8):
        self.patches = nnx.Conv(3, width, (4, 4), (4, 4), padding="VALID", rngs=rngs)
        self.token = nnx.Param(jnp.zeros((1, 1, width)))
        self.positions = nnx.Param(0.02 * nnx.initializers.normal(1)(rngs.params(), (1, 5, width)))
        self.blocks = nnx.List([EncoderBlock(width, rngs) for _ in range(1)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, CLASSES, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.patches(x)
        x = x.reshape(len(x), -1, x.shape[-1])
        first = jnp.broadcast_to(self.token[...], (len(x), 1, x.shape[-1]))
        x = jnp.concatenate([first, x], axis=1) + self.positions[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vit() -> Model:
    apply, params, state = jaxnorm.nnx.functionalize(nnx.jit(VisionTransformer)(nnx.Rngs(0)))
    rules = (
        (r"^patches/kernel$", (-4, -3, -2)),
        (r"attn/(query|key|value)/kernel$", (-3,)),
        (r"attn/out/kernel$", (-3, -2)),
        (r"(mlp/layers/\d|head)/kernel$", (-2,)),
    )
    forward = lambda p, x: apply(p, state, x, train=True)[0]  # noqa: E731
    return Model(forward, params, (IMAGES,), rules, "^head/")
