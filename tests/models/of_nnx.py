"""Flax NNX: a vision Transformer, and an EfficientNet's blocks."""

from collections.abc import Callable
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


class ConvNorm(nnx.Module):
    def __init__(self, ins: int, outs: int, size: int, rngs: nnx.Rngs, **options: Any):
        self.conv = nnx.Conv(ins, outs, (size, size), use_bias=False, rngs=rngs, **options)
        self.norm = nnx.BatchNorm(outs, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.norm(self.conv(x))


class SqueezeExcite(nnx.Module):
    def __init__(self, width: int, inner: int, rngs: nnx.Rngs):
        self.reduce = nnx.Conv(width, inner, (1, 1), rngs=rngs)
        self.expand = nnx.Conv(inner, width, (1, 1), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        gate = self.expand(nnx.silu(self.reduce(x.mean((1, 2), keepdims=True))))
        return x * nnx.sigmoid(gate)


class InvertedBottleneck(nnx.Module):
    def __init__(self, ins: int, outs: int, stride: int, rngs: nnx.Rngs):
        inner = 2 * ins
        self.expand = ConvNorm(ins, inner, 1, rngs)
        self.depthwise = ConvNorm(
            inner, inner, 3, rngs, strides=(stride, stride), feature_group_count=inner
        )
        self.gate = SqueezeExcite(inner, 3, rngs)
        self.project = ConvNorm(inner, outs, 1, rngs)
        self.residual = stride == 1 and ins == outs

    def __call__(self, x: Any) -> Any:
        y = nnx.silu(self.depthwise(nnx.silu(self.expand(x))))
        y = self.project(self.gate(y))
        return x + y if self.residual else y


class EfficientNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.stem = ConvNorm(3, 4, 3, rngs)
        self.blocks = nnx.List([InvertedBottleneck(4, 4, 1, rngs)])
        self.top = ConvNorm(4, 10, 1, rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(10, CLASSES, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.silu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.dropout(nnx.silu(self.top(x)).mean((1, 2))))


def _made(make: Callable[[nnx.Rngs], nnx.Module]) -> tuple[Any, Any]:
    apply, params, state = jaxnorm.nnx.functionalize(nnx.jit(make)(nnx.Rngs(0)))
    return lambda p, x: apply(p, state, x, train=True)[0], params


def vit() -> Model:
    apply, params = _made(VisionTransformer)
    rules = (
        (r"^patches/kernel$", (-4, -3, -2)),
        (r"attn/(query|key|value)/kernel$", (-3,)),
        (r"attn/out/kernel$", (-3, -2)),
        (r"(mlp/layers/\d|head)/kernel$", (-2,)),
    )
    return Model(apply, params, (IMAGES,), rules, "^head/")


def efficientnet() -> Model:
    apply, params = _made(EfficientNet)
    rules = (
        (r"(conv|gate/reduce|gate/expand)/kernel$", (-4, -3, -2)),
        (r"^head/kernel$", (-2,)),
    )
    return Model(apply, params, (IMAGES,), rules, "^head/")
