"""Phases: the units of a transposed convolution with a stride, and sums over the weights of each.

With a stride of s each output position meets every s-th tap only. A unit is a *phase* and a
channel: the taps i of one rest i mod s. Kernels need not be multiples of the stride: of 3 taps with
a stride of 2 one phase has two and one has one.
"""

import math
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._node import Axes


class PhasedAxes(tuple[int, ...]):
    """Fan-in axes along which the weights of one unit are a stride apart.

    Attributes:
        strides: the stride along each of the axes; 1 where a unit has the whole axis.
    """

    strides: tuple[int, ...]

    def __new__(cls, axes: Iterable[int], strides: Iterable[int]) -> "PhasedAxes":
        pairs = sorted(zip(axes, strides, strict=True))
        self = super().__new__(cls, (axis for axis, _ in pairs))
        self.strides = tuple(stride for _, stride in pairs)
        return self

    def __getnewargs__(self) -> tuple[Axes, tuple[int, ...]]:
        return tuple(self), self.strides

    def __eq__(self, other: object) -> bool:
        return strides_of(self) == strides_of(other) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.strides))

    def __repr__(self) -> str:
        return f"{super().__repr__()} by strides {self.strides}"


def phased(axes: Axes, strides: dict[int, int]) -> Axes:
    """Returns fan-in axes with the strides along some of them; plain ones if none is above 1."""
    steps = [strides.get(axis, 1) for axis in axes]
    return PhasedAxes(axes, steps) if any(step > 1 for step in steps) else axes


def strides_of(axes: Any) -> dict[int, int]:
    """Returns the strides above 1 by the axis; none for plain axes."""
    if not isinstance(axes, PhasedAxes):
        return {}
    return {axis: stride for axis, stride in zip(axes, axes.strides, strict=True) if stride > 1}


def unit_sum(array: Float[Array, "..."], axes: Axes) -> Float[Array, "..."]:
    """Sums over the weights of each unit; the fan-in axes stay, so that the sums broadcast.

    A fan-in axis has size 1 then, and along phases the array's own size: each tap has the sum of
    its phase.
    """
    strides = strides_of(axes)
    total = array.sum(tuple(axis for axis in axes if axis not in strides), keepdims=True)
    for axis, stride in strides.items():
        total = _phase_sum(total, axis, stride)
    return total


def unit_mean(array: Float[Array, "..."], axes: Axes) -> Float[Array, "..."]:
    """Means over the weights of each unit, in the form of `unit_sum`."""
    if not strides_of(axes):
        return array.mean(axes, keepdims=True)
    return jnp.divide(unit_sum(array, axes), sizes_like(array, axes))


def unit_sizes(kernel: Any, axes: Axes) -> Any:
    """Returns the number of weights per unit; an array that broadcasts if phases differ."""
    strides = strides_of(axes)
    size: Any = math.prod(kernel.shape[axis] for axis in axes if axis not in strides)
    for axis, stride in strides.items():
        taps = kernel.shape[axis]
        counts = np.array([len(range(tap % stride, taps, stride)) for tap in range(taps)])
        size = size * counts.reshape(-1, *(1,) * (-1 - axis))
    sizes = np.unique(size)
    return int(sizes[0]) if sizes.size == 1 else size


def sizes_like(array: Float[Array, "..."], axes: Axes) -> Any:
    """Returns `unit_sizes` as a number, or in the array's type."""
    sizes = unit_sizes(array, axes)
    return sizes if isinstance(sizes, int) else jnp.asarray(sizes, array.dtype)


def unit_count(kernel: Any, axes: Axes) -> int:
    """Returns the number of units, each a phase and a channel."""
    phases = {axis: min(kernel.shape[axis], stride) for axis, stride in strides_of(axes).items()}
    sizes = enumerate(kernel.shape, start=-len(kernel.shape))
    return math.prod(phases.get(axis, 1 if axis in axes else size) for axis, size in sizes)


def sums_shape(kernel: Any, axes: Axes) -> tuple[int, ...]:
    """Returns the shape of `unit_sum`."""
    strides, sizes = strides_of(axes), enumerate(kernel.shape, start=-len(kernel.shape))
    return tuple(size if axis in strides or axis not in axes else 1 for axis, size in sizes)


def refuse_phases(axes: Axes, name: str, purpose: str) -> None:
    """Raises ValueError for the kernel of a transposed convolution with a stride."""
    if strides_of(axes):
        raise ValueError(
            f"{name} has units of several phases (fan-in axes {axes!r}), as a transposed "
            f"convolution with a stride does, and {purpose} takes each unit as one column of a "
            "matrix. Leave it out of the layout, with exclude, or replace the layer by a "
            "convolution after an upsampling."
        )


def _phase_sum(array: Float[Array, "..."], axis: int, stride: int) -> Float[Array, "..."]:
    """Returns, at each index of an axis, the sum over those that are multiples of strides away."""
    taps = array.shape[axis]
    rows = -(-taps // stride)
    last = jnp.moveaxis(array, axis, -1)
    padding = (*((0, 0) for _ in range(last.ndim - 1)), (0, rows * stride - taps))
    split = jnp.pad(last, padding).reshape(*last.shape[:-1], rows, stride)
    sums = jnp.broadcast_to(split.sum(-2, keepdims=True), split.shape)
    return jnp.moveaxis(sums.reshape(*last.shape[:-1], -1)[..., :taps], -1, axis)
