"""Copies of models with some of their modules replaced."""

from typing import Any

from flax import nnx
from jaxtyping import Array, Float

#: A module's place in a model: attribute names and list indices.
Path = tuple[Any, ...]


def clone(model: nnx.Module) -> nnx.Module:
    """A copy of the model's structure; its arrays are shared, its variables are not."""
    copy: nnx.Module = nnx.merge(*nnx.split(model), copy=True)
    return copy


def set_bias(layer: Any, bias: Float[Array, "..."]) -> None:
    """Gives a Linear or Conv this bias, whether it had one or not."""
    layer.bias = nnx.Param(bias)
    layer.use_bias = True


def replaced(model: nnx.Module, replacements: dict[int, nnx.Module]) -> nnx.Module:
    """The model with modules exchanged, by ``id``, in every place that refers to them.

    Changes ``model``: clone it first.
    """
    if id(model) in replacements:
        return replacements[id(model)]
    for _, module in list(nnx.iter_modules(model)):
        for name, child in list(vars(module).items()):
            if id(child) in replacements:
                setattr(module, name, replacements[id(child)])
    return model
