"""The argument by which a model is told whether it trains, whatever it is called."""

import inspect
from typing import Any

from flax import nnx

#: Each name, and its value in training.
FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}


def with_flags(
    model: nnx.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    train: bool,
    override: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with the flags that the model's ``__call__`` takes and the caller left open.

    With ``override`` also those that the caller gave.
    """
    flags = {name: value is train for name, value in FLAGS.items()}
    if override:
        kwargs = {name: flags.get(name, value) for name, value in kwargs.items()}
    signature = inspect.signature(type(model).__call__)
    bound = signature.bind_partial(model, *args, **kwargs)
    for name, value in flags.items():
        if name in signature.parameters and (override or name not in bound.arguments):
            bound.arguments[name] = value
    return bound.args[1:], bound.kwargs
