"""What all layers here have: first values of their parameters, and a signature that shows."""

import inspect
from collections.abc import Callable
from typing import Any

from flax import nnx

#: ``(key, shape, dtype) -> array``.
Initializer = Callable[..., Any]


def initial(initializer: Initializer, rngs: nnx.Rngs | None, width: int, dtype: Any) -> Any:
    """A parameter of one value a unit. Ones and zeros draw nothing from ``rngs``."""
    if initializer in (nnx.initializers.ones, nnx.initializers.zeros):
        return nnx.Param(initializer(None, (width,), dtype))
    if rngs is None:
        raise ValueError(
            f"the initializer {initializer} got no random keys; pass rngs=nnx.Rngs(0), say, to the "
            "layer."
        )
    return nnx.Param(initializer(rngs.params(), (width,), dtype))


class Signature:
    """`inspect.signature` of a class, subclasses included: that of its `__init__`."""

    def __get__(self, layer: object, owner: type) -> inspect.Signature:
        if layer is not None:  # An instance has the signature of its call.
            raise AttributeError("__signature__")
        found = inspect.signature(getattr(owner, "__init__"))  # noqa: B009
        return found.replace(parameters=list(found.parameters.values())[1:])
