"""The argument by which a model is told whether it trains, whatever it is called."""

import inspect
from typing import Any

from flax import nnx

#: Each name, and its value in training.
FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}


def with_flags(
    model: nnx.Module, args: tuple[Any, ...], kwargs: dict[str, Any], train: bool
) -> dict[str, Any]:
    """``kwargs`` with the flags that the model's ``__call__`` takes and the caller left open."""
    signature = inspect.signature(type(model).__call__)
    given = signature.bind_partial(model, *args, **kwargs).arguments
    own = [name for name in FLAGS if name in signature.parameters and name not in given]
    return kwargs | {name: FLAGS[name] is train for name in own}


def as_told(
    model: nnx.Module, args: tuple[Any, ...], kwargs: dict[str, Any], train: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a model that is read in training or in evaluation, whatever its flags say."""
    flags = {name: FLAGS[name] is train for name in FLAGS}
    kwargs = {name: flags.get(name, value) for name, value in kwargs.items()}
    signature = inspect.signature(type(model).__call__)
    bound = signature.bind_partial(model, *args, **kwargs)
    bound.arguments.update({name: flags[name] for name in FLAGS if name in signature.parameters})
    return bound.args[1:], bound.kwargs
