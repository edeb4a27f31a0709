"""Small models, written as Flax's own examples are, and helpers on models."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import replace_batch_norm
from tests.draws import float32

#: Channels, or the width of a dense layer.
WIDTH = 8

IMAGES = (2, 8, 8, 3)
ROWS = (6, 5)


#: Options of Flax's ImageNet example.
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
    """Layers by name, and the function that calls them."""

    def __init__(self, forward: Callable[[Any, Any], Any], **layers: Any):
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.forward = forward

    def __call__(self, x: Any) -> Any:
        return self.forward(self, x)


class Activated(nnx.BatchNorm):
    """Normalization with an activation in its call, as some libraries have it."""

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


class Case(NamedTuple):
    """Model, with the layers that its normalizations follow.

    Attributes:
        make: the model's class or function, of ``nnx.Rngs``.
        shape: the shape of its input.
        followed: the paths of the normalizations that follow a kernel directly.
        others: the paths of all other normalizations.
        zeros: those of ``followed`` whose scale starts at zero, which no kernel can carry.
    """

    make: Callable[[nnx.Rngs], Any]
    shape: tuple[int, ...]
    followed: set[str]
    others: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()

    def model(self) -> Any:
        return self.make(nnx.Rngs(0))

    def input(self) -> Any:
        return float32(np.random.default_rng(7).normal(size=self.shape))


_BLOCKS = {"blocks/0/norm1", "blocks/0/norm2", "blocks/1/norm1", "blocks/1/norm2"}
RESNET = Case(
    ResNet,
    IMAGES,
    {"bn_init", "blocks/1/norm_proj", *_BLOCKS},
    zeros=("blocks/0/norm2", "blocks/1/norm2"),
)
CASES = {
    "resnet": RESNET,
    "containers": Case(containers, ROWS, {"listed/1", "named/norm", "sequence/layers/1"}),
    "preactivation": Case(PreActivation, IMAGES, {"norm2"}, ("norm1",)),
}


def slashed(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def kinds(model: nnx.Module) -> dict[str, str]:
    """Name of each module's class, by path."""
    return {slashed(path): type(module).__name__ for path, module in nnx.iter_modules(model)}


def variables(model: nnx.Module) -> dict[str, np.ndarray[Any, Any]]:
    """Copy of every variable except random state, by path."""
    state = nnx.state(model, nnx.Not(nnx.RngState))
    return {slashed(path): np.array(leaf[...]) for path, leaf in nnx.to_flat_state(state)}


def trained(model: Any, seed: int = 3) -> Any:
    """Sets random statistics, scales and shifts, as if the model had been trained."""
    draw = np.random.default_rng(seed)
    for _, layer in nnx.iter_modules(model):
        if isinstance(layer, nnx.BatchNorm):
            size = layer.num_features
            layer.mean[...] = float32(draw.normal(size=size))
            layer.var[...] = float32(draw.uniform(0.5, 2, size=size))
            layer.scale[...] = jnp.asarray(draw.normal(size=size), layer.scale.dtype)
            layer.bias[...] = jnp.asarray(draw.normal(size=size), layer.bias.dtype)
    return model


def replaced(model: Any, *inputs: Any, **options: Any) -> Any:
    """Replaces the normalizations of a trained model, which the user is warned of."""
    with pytest.warns(UserWarning, match=r"running statistics.*fold_batch_norm"):
        return replace_batch_norm(model, *inputs, **options)


def evaluated(model: Any, x: Any) -> Any:
    """Output in evaluation; the model's own mode stays."""
    copy = nnx.clone(model)
    copy.eval()
    return copy(x)
