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
