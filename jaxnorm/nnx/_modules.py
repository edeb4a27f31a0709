"""Copies of NNX models in which some modules are exchanged."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

#: Place of a module in a model: attribute names and list indices.
ModulePath = tuple[Any, ...]


def check_module(model: Any) -> None:
    """Raises TypeError for a model of another library."""
    if not isinstance(model, nnx.Module):
        raise TypeError(
            f"got a {type(model).__name__}, wanted a Flax NNX module. A model of Linen, Haiku or "
            "Equinox is a function of its parameters already: leave its BatchNorm layers out where "
            "it is written, with biases in the layers before, and give it to "
            "moving_average_normalization(apply, params, optimizer, *inputs), to normalizer_free, "
            "or to traced_layout(read(apply, params, *inputs)) for a layout."
        )


def clone(model: nnx.Module) -> nnx.Module:
    """Returns a copy of the model's structure with its own variables, which share the arrays."""
    copy: nnx.Module = nnx.merge(*nnx.split(model), copy=True)
    return copy


def is_all(variable: nnx.Variable[Any], number: float) -> bool | None:
    """Returns True if all values of a variable are a number; None if its values are not known.

    Those of an abstract or a traced variable are not.
    """
    values = variable.get_value()
    is_known = not isinstance(values, (jax.ShapeDtypeStruct, jax.core.Tracer))
    return bool(jnp.all(values == number)) if is_known else None


def set_bias(
    layer: Any,
    bias: Float[Array, "..."] | jax.ShapeDtypeStruct,
    like: nnx.Variable[Any] | None = None,
) -> None:
    """Gives a layer a bias: a variable of the kind it had, of the kind of ``like``, or a Param."""
    variable = like if layer.bias is None else layer.bias
    layer.bias = nnx.Param(bias) if variable is None else variable.replace(bias)
    layer.use_bias = True


def exchange(model: nnx.Module, replacements: dict[int, nnx.Module]) -> nnx.Module:
    """Exchanges modules, by ``id``, in every place that refers to them.

    Changes ``model``: clone it first. Returns its replacement if the model itself is exchanged.
    """
    if id(model) in replacements:
        return replacements[id(model)]
    for _, module in list(nnx.iter_modules(model)):
        for name, child in list(vars(module).items()):
            leaves = jax.tree.leaves(child, is_leaf=_is_module)
            if any(id(leaf) in replacements for leaf in leaves):
                changed = jax.tree.map(
                    lambda x: replacements.get(id(x), x), child, is_leaf=_is_module
                )
                # Containers that hold modules are data of nnx; others would be static.
                setattr(module, name, changed if _is_module(child) else nnx.data(changed))
    return model


def _is_module(x: Any) -> bool:
    return isinstance(x, nnx.Module)
