"""The first values of a layer's scale and bias."""

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
