"""Compilation before the first call, so that no timing ever contains it."""

from collections.abc import Callable
from typing import Any

import jax


class AheadOfTime:
    """A jitted function that can be compiled without being called; once for each set of shapes.

    Args:
        function: a pure function of trees of arrays.
        **options: of `jax.jit`, such as ``donate_argnums``.
    """

    def __init__(self, function: Callable[..., Any], **options: Any):
        self.__wrapped__ = function
        self._jitted = jax.jit(function, **options)
        self._compiled: dict[Any, jax.stages.Compiled] = {}

    def compile(self, *args: Any) -> jax.stages.Compiled:
        """The function compiled for arguments of these shapes and types."""
        shapes = jax.tree.map(jax.typeof, args)
        leaves, structure = jax.tree.flatten(shapes)
        key = (tuple(leaves), structure)
        if key not in self._compiled:
            self._compiled[key] = self._jitted.lower(*args).compile()
        return self._compiled[key]

    def __call__(self, *args: Any) -> Any:
        """The function's value, compiled first if it is not yet."""
        return self.compile(*args)(*args)

    @property
    def compilations(self) -> int:
        """How often the function was compiled."""
        return len(self._compiled)
