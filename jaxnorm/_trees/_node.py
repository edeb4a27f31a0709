"""The base of every reparametrization: a pytree node that stands where a kernel stood."""

import abc
import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

import jax
import numpy as np
from jaxtyping import Array, Float

#: Negative axes of an array, as in ``(-4, -3, -2)`` for an HWIO kernel.
Axes = tuple[int, ...]

NodeType = TypeVar("NodeType", bound="type[Reparametrization]")


#: The names of the array fields of each kind of node.
NODE_FIELDS: list[set[str]] = []

#: What only an array has, asked of a node where `effective` was forgotten.
_OF_ARRAYS = ("shape", "dtype", "ndim", "size", "T", "mT", "at", "astype", "reshape", "sum", "mean")


def _forgotten(node: "Reparametrization", use: str) -> str:
    return (
        f"{use} was asked of a {type(node).__name__}, which holds the raw parameters of a "
        "kernel and is no array; call jaxnorm.effective(params) at the top of the loss and use its "
        "result."
    )


class Reparametrization(abc.ABC):
    """Raw parameters from which a kernel is computed.

    A subclass is a frozen dataclass whose array fields are pytree children and whose
    ``fan_in_axes`` are static. The fields named in ``kernel_fields`` have the kernel's own shape,
    so constraints on the kernel's fan-in axes apply to them; the others are per unit.

    Any library that keeps pytrees keeps nodes; ``flax.serialization`` knows them once
    ``jaxnorm.nnx`` is imported.
    """

    #: Names of the fields that are shaped as the kernel is.
    kernel_fields: ClassVar[tuple[str, ...]] = ()
    #: Whether those are coordinates of zero-sum units: of the kernel's norm, without its mean.
    zero_sum: ClassVar[bool] = False

    fan_in_axes: Axes

    @classmethod
    @abc.abstractmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: Axes) -> "Reparametrization":
        """The raw parameters of which ``kernel`` is the effective value."""

    @abc.abstractmethod
    def effective(self) -> Float[Array, "..."]:
        """The kernel that these raw parameters stand for."""

    def rescaled(self, factor: Float[Array, "..."]) -> "Reparametrization":
        """A node whose effective kernel is ``factor`` times this one's, where the set allows.

        Args:
            factor: a scalar, or one value per unit with the fan-in axes kept as axes of size 1.
        """
        kernel = self.effective()
        return self.from_kernel(kernel * factor.astype(kernel.dtype), self.fan_in_axes)

    def parameter_count(self) -> int:
        """The number of free parameters."""
        return sum(map(count_of, self.arrays().values()))

    def arrays(self) -> dict[str, Any]:
        """The array fields by name; a nested node is one of them."""
        return {name: getattr(self, name) for name in self._array_fields()}

    def replaced(self, **values: Any) -> "Reparametrization":
        """The same node with other arrays."""
        return dataclasses.replace(self, **values)  # type: ignore[type-var]  # all are dataclasses

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(_forgotten(self, "an array"))

    __jax_array__ = __array__

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ARRAYS:
            raise AttributeError(_forgotten(self, f"its .{name}"))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def with_axes(self, matched: bool) -> "Reparametrization":
        """This node with its fan-in axes (or None) in the place of each array, as a layout says."""
        axes = {name: self._field_axes(name, matched) for name in self._array_fields()}
        return self.replaced(**axes)

    def _field_axes(self, name: str, matched: bool) -> Any:
        value = getattr(self, name)
        if isinstance(value, Reparametrization):
            return value.with_axes(matched)
        return self.fan_in_axes if matched and name in self.kernel_fields else None

    def _array_fields(self) -> list[str]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        return [field.name for field in fields if not field.metadata.get("static")]


def static_field() -> Any:
    """A dataclass field that is part of the node's type, not of its data."""
    return dataclasses.field(metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static_field, dataclasses.field))
def register_node(cls: NodeType) -> NodeType:
    """Makes ``cls`` a frozen dataclass and a pytree node with named children.

    The class is part of the static data. ``jax.tree_util.register_dataclass`` leaves it out, so
    that nodes of different kinds can compare equal as structures, and share a compiled program.
    """
    node: Any = dataclasses.dataclass(frozen=True)(cls)
    static = [field.name for field in dataclasses.fields(node) if field.metadata.get("static")]
    arrays = [field.name for field in dataclasses.fields(node) if field.name not in static]
    keys = [jax.tree_util.GetAttrKey(name) for name in arrays]
    NODE_FIELDS.append(set(arrays))

    def flatten(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children = tuple(getattr(x, name) for name in arrays)
        return children, (node, *(getattr(x, name) for name in static))

    def flatten_with_keys(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, kind = flatten(x)
        return tuple(zip(keys, children, strict=True)), kind

    def unflatten(kind: tuple[Any, ...], children: Iterable[Any]) -> Any:
        x = object.__new__(node)
        values = [*zip(arrays, children, strict=True), *zip(static, kind[1:], strict=True)]
        for name, value in values:
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(node, flatten_with_keys, unflatten, flatten)
    result: NodeType = node
    return result


def count_of(entry: Any) -> int:
    """The number of free parameters of a node, or of the arrays in anything else."""
    if isinstance(entry, Reparametrization):
        return entry.parameter_count()
    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(entry))


def kernel_of(kernel: Any) -> Any:
    """The kernel itself: an array as it is, a node's effective value."""
    return kernel.effective() if isinstance(kernel, Reparametrization) else kernel
