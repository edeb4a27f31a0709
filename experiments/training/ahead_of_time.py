"""Compilation before the first call, so that no timing contains it."""

from collections.abc import Callable
from typing import Any

import jax


class AheadOfTime:
    """A jitted function with explicit compilation, once per set of shapes.

    Args:
        function: a pure function of trees of arrays.
        **options: options of `jax.jit`, such as ``donate_argnums``.
    """

    def __init__(self, function: Callable[..., Any], **options: Any):
        self.__wrapped__ = function
        self._jitted = jax.jit(function, **options)
        self._compiled: dict[Any, jax.stages.Compiled] = {}

    def compile(self, *args: Any) -> jax.stages.Compiled:
        """Returns the function compiled for arguments of these shapes and types."""
        shapes = jax.tree.map(jax.typeof, args)
        leaves, structure = jax.tree.flatten(shapes)
        key = (tuple(leaves), structure)
        if key not in self._compiled:
            self._compiled[key] = self._jitted.lower(*args).compile()
        return self._compiled[key]

    def __call__(self, *args: Any) -> Any:
        """Calls the function, compiled first if needed."""
        return self.compile(*args)(*args)

    @property
    def compilations(self) -> int:
        """The number of compilations."""
        return len(self._compiled)
