"""Base class of reparametrized kernels: pytree nodes that stand where a kernel stood."""

import abc
import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._numerics import multiplied
from jaxnorm._serialization import register_export, register_with_flax

#: Negative axes of an array, as in ``(-4, -3, -2)`` for an HWIO kernel.
Axes = tuple[int, ...]

Node = TypeVar("Node", bound="Reparametrization")


@dataclass_transform(frozen_default=True)
class Reparametrization(abc.ABC):
    """Raw parameters from which a kernel is computed.

    A subclass is a frozen dataclass and a pytree node by itself, without a decorator. It annotates
    its fields, ``fan_in_axes`` among them, and has the two methods below. Its array fields are
    pytree children; ``fan_in_axes`` is static. Fields named in ``kernel_fields`` have the kernel's
    own shape, so constraints on the kernel's fan-in axes apply to them; the other fields have one
    value per channel. ``docs/guides/compose.md`` has a kind of twelve lines.
    """

    #: Names of the fields that have the kernel's shape.
    kernel_fields: ClassVar[tuple[str, ...]] = ()
    #: Names of the fields that are part of the node's type, not of its data.
    static_fields: ClassVar[tuple[str, ...]] = ("fan_in_axes",)
    #: Name of the field that multiplies the kernel per channel; None for a kind without one.
    scale_field: ClassVar[str | None] = None
    #: Names of fields in paths and checkpoints, if they are not the fields' own: two kinds whose
    #: fields have the same names and another meaning must differ here.
    key_names: ClassVar[dict[str, str]] = {}
    #: False for coordinates in some basis, which cannot be centered, measured or projected.
    stores_weights: ClassVar[bool] = True

    fan_in_axes: Axes

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _register_node(cls)

    def __new__(cls: type[Node], *args: Any, **kwargs: Any) -> Node:
        register_with_flax(cls)
        return object.__new__(cls)

    @classmethod
    @abc.abstractmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: Axes) -> "Reparametrization":
        """Returns the raw parameters of which ``kernel`` is the effective value."""

    @abc.abstractmethod
    def effective(self) -> Float[Array, "..."]:
        """Returns the kernel that these raw parameters represent."""

    def rescaled(self, factor: Float[Array, "..."]) -> "Reparametrization":
        """Returns a node whose effective kernel is multiplied by ``factor``, if the set allows it.

        Args:
            factor: a scalar, or one value per channel with the fan-in axes kept as axes of size 1.
        """
        return self.from_kernel(multiplied(self.effective(), factor), self.fan_in_axes)

    def parameter_count(self) -> int:
        """Returns the number of free parameters."""
        return count_parameters(self.arrays())

    def arrays(self) -> dict[str, Any]:
        """Returns the array fields by name; a nested node is one of them."""
        return {name: getattr(self, name) for name in array_fields(self)}

    def replaced(self: Node, **values: Any) -> Node:
        """Returns the node with new values for some fields."""
        return dataclasses.replace(self, **values)  # type: ignore[type-var]  # all are dataclasses

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} holds the raw parameters of a kernel and is no array; call "
            "jaxnorm.effective(params) at the top of the loss and use its result."
        )

    __jax_array__ = __array__


def array_fields(node: Any) -> list[str]:
    """Returns the names of the array fields of a node or of a class of nodes."""
    names = (field.name for field in dataclasses.fields(node))
    return [name for name in names if name not in node.static_fields]


def _register_node(cls: type[Reparametrization]) -> None:
    """Makes ``cls`` a frozen dataclass and a pytree node with named children.

    The class is part of the static data. ``jax.tree_util.register_dataclass`` leaves the class
    out, so that nodes of different kinds can compare equal as structures and share one compiled
    program.
    """
    node: Any = dataclasses.dataclass(frozen=True)(cls)
    arrays = array_fields(node)
    static = [field.name for field in dataclasses.fields(node) if field.name not in arrays]
    keys = [jax.tree_util.GetAttrKey(node.key_names.get(name, name)) for name in arrays]

    def flatten(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children = tuple(getattr(x, name) for name in arrays)
        return children, (node, *(getattr(x, name) for name in static))

    def flatten_with_keys(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, kind = flatten(x)
        return tuple(zip(keys, children, strict=True)), kind

    def unflatten(kind: tuple[Any, ...], children: Iterable[Any]) -> Any:
        x = node.__new__(node)
        values = [*zip(arrays, children, strict=True), *zip(static, kind[1:], strict=True)]
        for name, value in values:
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(node, flatten_with_keys, unflatten, flatten)
    register_export(node)


def is_node(x: Any) -> bool:
    """Returns True for a reparametrized kernel."""
    return isinstance(x, Reparametrization)


def effective_kernel(kernel: Any) -> Any:
    """Returns an array unchanged, and the effective kernel of a node."""
    return kernel.effective() if isinstance(kernel, Reparametrization) else kernel


def count_parameters(tree: Any) -> int:
    """Counts the free parameters of a tree's nodes and arrays."""
    leaves = jax.tree.leaves(tree, is_leaf=is_node)
    return sum(x.parameter_count() if is_node(x) else int(np.size(x)) for x in leaves)
