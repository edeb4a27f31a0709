"""Reparametrized kernels in ``flax.serialization`` and ``jax.export``.

A state dict holds a node as ``{kind: {field: array}}``, so that it restores into its own kind only.
Flax is not imported: its registration waits until somebody imports ``flax.serialization``.
"""

import ast
import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from jax import export

#: Module of Flax that keeps the registered types.
FLAX = "flax.serialization"

#: Registrations that wait for the import of `FLAX`.
_waiting: list[Callable[[Any], None]] = []


def register_serialization(node_type: Any) -> None:
    """Makes a class of nodes known to ``jax.export``, and to Flax as soon as it is imported."""
    # A notebook may define a class of one name twice; exported programs keep the first.
    with contextlib.suppress(ValueError):
        export.register_pytree_node_serialization(
            node_type,
            serialized_name=f"{node_type.__module__}.{node_type.__qualname__}",
            serialize_auxdata=lambda auxdata: repr(auxdata[1:]).encode(),
            deserialize_auxdata=lambda data: (node_type, *ast.literal_eval(bytes(data).decode())),
        )

    def register(flax: Any) -> None:
        flax.register_serialization_state(
            node_type,
            lambda node: _to_state(flax, node),
            lambda node, state: _from_state(flax, node, state),
            override=True,
        )

    if FLAX in sys.modules:
        register(sys.modules[FLAX])
    else:
        _waiting.append(register)


def _to_state(flax: Any, node: Any) -> dict[str, Any]:
    """Returns the state dict of a node, nested nodes included."""
    fields = {name: flax.to_state_dict(value) for name, value in node.arrays().items()}
    return {_kind(node): fields}


def _from_state(flax: Any, node: Any, state: Any) -> Any:
    """Returns ``node`` with the arrays of ``state``. Raises ValueError for another kind."""
    kind = _kind(node)
    if not isinstance(state, dict) or list(state) != [kind]:
        stored = ", ".join(map(str, state)) if isinstance(state, dict) else "an array"
        raise ValueError(
            f"the kernel at {flax.current_path()} is {kind}, and the serialized one is {stored}; "
            "restore it into parameters that are reparametrized as the saved ones were."
        )
    fields = {
        name: flax.from_state_dict(value, state[kind][name], name=name)
        for name, value in node.arrays().items()
    }
    return node.replaced(**fields)


def _kind(node: Any) -> str:
    """Class and fan-in axes, ``Scaled(-2,)``: together they give the arrays their meaning."""
    return f"{type(node).__name__}{node.fan_in_axes}"


class _AfterImport(importlib.abc.MetaPathFinder):
    """Import hook that runs the waiting registrations once `FLAX` has been imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != FLAX:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(fullname)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            for register in _waiting:
                register(module)

        spec.loader.exec_module = exec_module
        return spec


if FLAX not in sys.modules:
    sys.meta_path.insert(0, _AfterImport())
