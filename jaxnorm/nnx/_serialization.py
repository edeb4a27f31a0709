"""Reparametrized kernels in ``flax.serialization``: to_bytes, from_bytes and state dicts."""

from collections.abc import Iterator
from typing import Any

from flax import serialization

from jaxnorm._trees._node import Reparametrization


def _to_state(node: Reparametrization) -> dict[str, Any]:
    """The array fields by name, a node's own inside it."""
    return {name: serialization.to_state_dict(value) for name, value in node.arrays().items()}


def _from_state(node: Reparametrization, state: Any) -> Reparametrization:
    """``node`` with the fields of ``state``. Raises ValueError for other fields.

    The kind is not stored: one with fields of the same names is not told from this one.
    """
    own = node.arrays()
    got = sorted(state) if isinstance(state, dict) else ["an array"]
    if got != sorted(own):
        raise ValueError(
            f"the kernel at {serialization.current_path()} is a {type(node).__name__} with the "
            f"fields {', '.join(own)}, and the serialized one has {', '.join(got)}; restore it "
            "into parameters that are reparametrized as the saved ones were."
        )
    restored = {
        name: serialization.from_state_dict(value, state[name], name=name)
        for name, value in own.items()
    }
    return node.replaced(**restored)


def _kinds(kind: type[Reparametrization] = Reparametrization) -> Iterator[type[Reparametrization]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


for _kind in _kinds():
    serialization.register_serialization_state(_kind, _to_state, _from_state, override=True)
