"""Small models, written the way flax's own examples are."""

from collections.abc import Callable
from functools import partial
from typing import Any

from flax import nnx

#: Channels, or the width of a dense layer.
WIDTH = 8
IMAGES = (2, 8, 8, 3)
ROWS = (6, 5)


#: As in flax's ImageNet example.
_conv = partial(nnx.Conv, use_bias=False)
_norm = partial(nnx.BatchNorm, momentum=0.9, epsilon=1e-5)


class ResNetBlock(nnx.Module):
    def __init__(self, inputs: int, filters: int, strides: Any, rngs: Any):
        self.conv1 = _conv(inputs, filters, (3, 3), strides, rngs=rngs)
        self.norm1 = _norm(filters, rngs=rngs)
        self.conv2 = _conv(filters, filters, (3, 3), rngs=rngs)
        self.norm2 = _norm(filters, scale_init=nnx.initializers.zeros_init(), rngs=rngs)
        self.projects = inputs != filters or strides != (1, 1)
        if self.projects:
            self.conv_proj = _conv(inputs, filters, (1, 1), strides, rngs=rngs)
            self.norm_proj = _norm(filters, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        residual = x
        y = nnx.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.projects:
            residual = self.norm_proj(self.conv_proj(residual))
        return nnx.relu(residual + y)


class ResNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv_init = _conv(3, WIDTH, (3, 3), rngs=rngs)
        self.bn_init = _norm(WIDTH, rngs=rngs)
        blocks = [
            ResNetBlock(WIDTH, WIDTH, (1, 1), rngs),
            ResNetBlock(WIDTH, 2 * WIDTH, (2, 2), rngs),
        ]
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(2 * WIDTH, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.bn_init(self.conv_init(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class PreActivation(nnx.Module):
    """Normalization, ReLU, convolution: the normalization comes before a zero-padded kernel."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv_init = _conv(3, WIDTH, (3, 3), rngs=rngs)
        self.norm1 = _norm(WIDTH, rngs=rngs)
        self.conv1 = _conv(WIDTH, WIDTH, (3, 3), rngs=rngs)
        self.norm2 = _norm(WIDTH, rngs=rngs)
        self.conv2 = _conv(WIDTH, WIDTH, (3, 3), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.conv_init(x)
        y = self.conv1(nnx.relu(self.norm1(x)))
        return x + self.conv2(nnx.relu(self.norm2(y)))


class Custom(nnx.Module):
    """Layers by name, and what to do with them."""

    def __init__(self, forward: Callable[[Any, Any], Any], **layers: Any):
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.forward = forward

    def __call__(self, x: Any) -> Any:
        return self.forward(self, x)


class Activated(nnx.BatchNorm):
    """With its activation, as some libraries have it."""

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return nnx.relu(super().__call__(x, *args, **kwargs))


def dense(rngs: nnx.Rngs, inputs: int = WIDTH, **settings: Any) -> nnx.Linear:
    return nnx.Linear(inputs, WIDTH, rngs=rngs, **settings)


def norm(rngs: nnx.Rngs, **settings: Any) -> nnx.BatchNorm:
    return nnx.BatchNorm(WIDTH, rngs=rngs, **settings)


def containers(rngs: nnx.Rngs) -> Custom:
    """Layers in an nnx.List, an nnx.Dict and an nnx.Sequential."""

    def forward(m: Any, x: Any) -> Any:
        x = nnx.relu(m.listed[1](m.listed[0](x)))
        x = nnx.relu(m.named["norm"](m.named["dense"](x)))
        return m.sequence(x)

    return Custom(
        forward,
        listed=nnx.List([dense(rngs, 5), norm(rngs)]),
        named=nnx.Dict(dense=dense(rngs), norm=norm(rngs)),
        sequence=nnx.Sequential(dense(rngs), norm(rngs), nnx.relu),
    )
