"""A function to compile, and shapes with their shardings over devices that need not be there."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from experiments.training.devices import DATA, MODEL


class Subject(NamedTuple):
    """A function to compile.

    Attributes:
        function: a pure function of trees of arrays.
        arguments: the shapes, types and shardings of its arguments.
        parameters: the number of parameters on each device.
        donate: the indices of the arguments whose memory results may reuse.
    """

    function: Any
    arguments: tuple[Any, ...]
    parameters: int
    donate: tuple[int, ...] = ()


def placed(
    tree: PyTree, devices: Sequence[jax.Device], axes: Callable[[Any], PartitionSpec]
) -> PyTree:
    """Returns the shapes of a tree; ``axes`` returns the sharded axes of each leaf."""
    sizes, auto = (len(devices), 1), (AxisType.Auto,) * 2
    mesh = jax.make_mesh(sizes, (DATA, MODEL), auto, devices=devices)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, axes(x))),
        tree,
    )


def own_size(tree: PyTree) -> int:
    """Counts the numbers of a tree of placed shapes that one device holds."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) for x in jax.tree.leaves(tree))
