"""The table of models, with the layer that each normalization follows; and what tests do to them.

A new kind of model is a new row.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.nnx import models
from tests.nnx.models import IMAGES, ROWS


class Case(NamedTuple):
    """One model.

    Attributes:
        name: the name of its tests.
        make: the model's class or function, of ``nnx.Rngs``.
        shape: the shape of its input.
        followed: the path of each normalization that follows a kernel directly: the layer's path.
        others: the paths of the other normalizations.
        zeros: those of ``followed`` whose scale starts at zero, which no kernel can carry.
    """

    name: str
    make: Callable[[nnx.Rngs], Any]
    shape: tuple[int, ...]
    followed: dict[str, str]
    others: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()

    def model(self) -> Any:
        return self.make(nnx.Rngs(0))

    def input(self) -> jax.Array:
        return jnp.asarray(np.random.default_rng(7).normal(size=self.shape), jnp.float32)


_RESNET = {
    "bn_init": "conv_init",
    "blocks/0/norm1": "blocks/0/conv1",
    "blocks/0/norm2": "blocks/0/conv2",
    "blocks/1/norm1": "blocks/1/conv1",
    "blocks/1/norm2": "blocks/1/conv2",
    "blocks/1/norm_proj": "blocks/1/conv_proj",
}
_CONTAINERS = {
    "listed/1": "listed/0",
    "named/norm": "named/dense",
    "sequence/layers/1": "sequence/layers/0",
}
_ONE = {"norm": "layer"}

RESNET = Case("resnet", models.ResNet, IMAGES, _RESNET, zeros=("blocks/0/norm2", "blocks/1/norm2"))
CONVNET = Case("convnet", models.ConvNet, IMAGES, {"norm1": "conv1", "norm2": "conv2"})
#: Every normalization of these can be written into a kernel.
FOLDABLE = (
    RESNET,
    CONVNET,
    Case("mlp", models.MLP, ROWS, {"norm1": "linear1"}),
    Case("containers", models.containers, ROWS, _CONTAINERS),
    Case("checkpointed", models.checkpointed, ROWS, _ONE),
    Case("rematerialized", models.rematerialized, ROWS, _ONE),
)
ALL = (
    *FOLDABLE,
    Case("preactivation", models.PreActivation, IMAGES, {"norm2": "conv1"}, ("norm1",)),
)


def slashed(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def kinds(model: nnx.Module) -> dict[str, str]:
    """The name of each module's class, by path."""
    return {slashed(path): type(module).__name__ for path, module in nnx.iter_modules(model)}


def at(tree: Any, path: str) -> Any:
    """The subtree at a path with slashes."""
    for name in path.split("/"):
        tree = tree[int(name) if name.isdigit() else name]
    return tree


def variables(model: nnx.Module) -> dict[str, np.ndarray[Any, Any]]:
    """A copy of every variable that is no random state, by path."""
    state = nnx.state(model, nnx.Not(nnx.RngState))
    return {slashed(path): np.array(leaf[...]) for path, leaf in nnx.to_flat_state(state)}


def trained(model: Any, seed: int = 3) -> Any:
    """The model with random statistics, scales and shifts, as if it had been trained."""
    draw = np.random.default_rng(seed)
    for _, norm in nnx.iter_modules(model):
        if isinstance(norm, nnx.BatchNorm):
            size = norm.num_features
            norm.mean[...] = jnp.asarray(draw.normal(size=size), jnp.float32)
            norm.var[...] = jnp.asarray(draw.uniform(0.5, 2, size=size), jnp.float32)
            norm.scale[...] = jnp.asarray(draw.normal(size=size), norm.scale.dtype)
            norm.bias[...] = jnp.asarray(draw.normal(size=size), norm.bias.dtype)
    return model


def evaluated(model: Any, x: Any) -> Any:
    """What the model computes in evaluation; the model's own mode stays as it is."""
    copy = nnx.clone(model)
    copy.eval()
    return copy(x)
