"""Reparametrized kernels in ``flax.serialization`` and ``jax.export``.

A state dict holds a node as ``{kind: {field: array}}``, so that it restores into its own kind only.
"""

import ast
import contextlib
import sys
from typing import Any

from jax import export


def register_export(node_type: Any) -> None:
    """Makes a class of nodes known to ``jax.export``."""
    # A notebook may define a class of one name twice; exported programs keep the first.
    with contextlib.suppress(ValueError):
        export.register_pytree_node_serialization(
            node_type,
            serialized_name=f"{node_type.__module__}.{node_type.__qualname__}",
            serialize_auxdata=lambda auxdata: repr(auxdata[1:]).encode(),
            deserialize_auxdata=lambda data: (node_type, *ast.literal_eval(bytes(data).decode())),
        )


def register_with_flax(node_type: Any) -> None:
    """Makes a class of nodes known to ``flax.serialization``, if somebody has imported it.

    It is called for each new node: whoever serializes parameters with Flax has imported Flax before
    they were made or restored.
    """
    flax: Any = sys.modules.get("flax.serialization")
    if hasattr(flax, "register_serialization_state") and not flax.is_serializable(node_type):
        flax.register_serialization_state(
            node_type,
            lambda node: _to_state(flax, node),
            lambda node, state: _from_state(flax, node, state),
        )


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
