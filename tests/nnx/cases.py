"""The table of models, with what follows a kernel; and what tests do to them.

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
        make: the model's class or function, of ``nnx.Rngs``.
        shape: the shape of its input.
        followed: the paths of the normalizations that follow a kernel directly.
        others: the paths of the other normalizations.
        zeros: those of ``followed`` whose scale starts at zero, which no kernel can carry.
    """

    make: Callable[[nnx.Rngs], Any]
    shape: tuple[int, ...]
    followed: set[str]
    others: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()

    def model(self) -> Any:
        return self.make(nnx.Rngs(0))

    def input(self) -> jax.Array:
        return jnp.asarray(np.random.default_rng(7).normal(size=self.shape), jnp.float32)


_BLOCKS = {"blocks/0/norm1", "blocks/0/norm2", "blocks/1/norm1", "blocks/1/norm2"}
RESNET = Case(
    models.ResNet,
    IMAGES,
    {"bn_init", "blocks/1/norm_proj", *_BLOCKS},
    zeros=("blocks/0/norm2", "blocks/1/norm2"),
)
CASES = {
    "resnet": RESNET,
    "containers": Case(models.containers, ROWS, {"listed/1", "named/norm", "sequence/layers/1"}),
    "preactivation": Case(models.PreActivation, IMAGES, {"norm2"}, ("norm1",)),
}


def slashed(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def kinds(model: nnx.Module) -> dict[str, str]:
    """The name of each module's class, by path."""
    return {slashed(path): type(module).__name__ for path, module in nnx.iter_modules(model)}


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
