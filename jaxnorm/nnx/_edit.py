"""Copies of models with some of their modules replaced."""

from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Float

#: A module's place in a model: attribute names and list indices.
Path = tuple[Any, ...]


def check_module(model: Any) -> None:
    """Raises TypeError for a model of another library."""
    if not isinstance(model, nnx.Module):
        raise TypeError(
            f"got a {type(model).__name__}, wanted a Flax NNX module. A model of Linen, Haiku or "
            "Equinox is a function of its parameters already: give that to traced_layout(apply, "
            "params, *inputs), the parameters to constrain, and leave its BatchNorm layers out "
            "where it is written."
        )


def clone(model: nnx.Module) -> nnx.Module:
    """A copy of the model's structure; its arrays are shared, its variables are not."""
    copy: nnx.Module = nnx.merge(*nnx.split(model), copy=True)
    return copy


def set_bias(layer: Any, bias: Float[Array, "..."], like: nnx.Variable[Any] | None = None) -> None:
    """Gives a layer this bias: a variable of the kind that it had, or of the kind of ``like``."""
    own = like if layer.bias is None else layer.bias
    layer.bias = nnx.Param(bias) if own is None else own.replace(bias)
    layer.use_bias = True


def replaced(model: nnx.Module, replacements: dict[int, nnx.Module]) -> nnx.Module:
    """The model with modules exchanged, by ``id``, in every place that refers to them.

    Changes ``model``: clone it first.
    """
    if id(model) in replacements:
        return replacements[id(model)]
    for _, module in list(nnx.iter_modules(model)):
        for name, child in list(vars(module).items()):
            held = jax.tree.leaves(child, is_leaf=_is_module)
            if any(id(x) in replacements for x in held):
                inside = jax.tree.map(
                    lambda x: replacements.get(id(x), x), child, is_leaf=_is_module
                )
                # What nnx.data keeps; other containers stay what they are.
                setattr(module, name, inside if _is_module(child) else nnx.data(inside))
    return model


def _is_module(x: Any) -> bool:
    return isinstance(x, nnx.Module)
