"""Phases of the outputs of a transposed convolution with a stride: numbers per phase and channel.

They stand at its outputs, or at the taps that each phase reads.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._node import Axes
from jaxnorm._phases import strides_of
from jaxnorm._trace.values import Use

Values = Float[Array, "..."]


class OutputPhase(NamedTuple):
    """Axis of space of a transposed convolution with a stride.

    Attributes:
        axis: the kernel's axis, negative; None for a kernel of one tap, which writes one phase.
        place: the axis of the product.
        stride: how many phases the outputs along that axis have: output o is of the phase
            o mod stride.
        of_taps: the phase of the outputs that read each tap.
    """

    axis: int | None
    place: int
    stride: int
    of_taps: tuple[int, ...]


Phases = Sequence[OutputPhase]


def output_phases(equation: Any, use: Use) -> tuple[OutputPhase, ...]:
    """Returns the axes along which the outputs of a product have phases."""
    if equation.primitive.name != "conv_general_dilated":
        return ()
    params, view = equation.params, use.kernel
    numbers = params["dimension_numbers"]
    if {*params["window_strides"]} != {1}:
        return ()
    rows = zip(
        numbers.rhs_spec[2:],
        numbers.out_spec[2:],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        strict=True,
    )
    phases = []
    for axis, place, (before, _), stride, dilation in rows:
        taps, original = range(view.sizes[axis]), view.whole_axis(axis)
        if original in strides_of(use.fan_in) or (len(taps) == 1 < stride):
            turned = any(factor.reversed for factor in view.dims[axis] if factor.size > 1)
            of_taps = tuple((before - tap * dilation) % stride for tap in taps)
            phases.append(OutputPhase(original, place, stride, of_taps[:: -1 if turned else 1]))
    return tuple(phases)


def of_phases(output: Values, phases: Phases, function: Callable[[Values], Values]) -> Values:
    """Returns ``function`` of the outputs of each phase, with the phases' axes in front."""
    strides = [phase.stride for phase in phases]
    parts = []
    for starts in product(*map(range, strides)):
        index = [slice(None)] * output.ndim
        for phase, start in zip(phases, starts, strict=True):
            index[phase.place] = slice(start, None, phase.stride)
        parts.append(function(output[tuple(index)]))
    return jnp.stack(parts).reshape(*strides, *parts[0].shape)


def at_written(output: Values, phases: Phases) -> Values:
    """Returns the outputs of the phases that have taps: the others are zeros."""
    for phase in phases:
        of_outputs = np.arange(output.shape[phase.place]) % phase.stride
        written = np.flatnonzero(np.isin(of_outputs, phase.of_taps))
        if 0 < written.size < of_outputs.size:
            output = jnp.take(output, written, axis=phase.place)
    return output


def at_outputs(values: Values, phases: Phases, output: Values, unit_axes: Axes) -> Values:
    """Returns values per phase and unit in the output's rank, each where its phase is."""
    rests = [np.arange(output.shape[phase.place]) % phase.stride for phase in phases]
    places = [phase.place for phase in phases]
    return _placed(values, rests, [*places, *sorted(unit_axes)], range(output.ndim))


def at_taps(values: Values, phases: Phases, fan_in: Axes, ndim: int) -> Values:
    """Returns values per phase and unit in a kernel's rank, each at the taps of its outputs."""
    units = [axis for axis in range(-ndim, 0) if axis not in fan_in]
    axes = [phase.axis for phase in phases if phase.axis is not None]
    taps = [np.asarray(phase.of_taps) for phase in phases]
    return _placed(values, taps, [*axes, *units], range(-ndim, 0))


def _placed(
    values: Values, indices: Sequence[np.ndarray], axes: Sequence[int], all_axes: Sequence[int]
) -> Values:
    """Takes entries along the leading axes, and returns the axes in their order among all axes."""
    for axis, index in enumerate(indices):
        values = jnp.take(values, index, axis=axis)
    ordered = values.transpose(np.argsort(axes))
    return jnp.expand_dims(ordered, [i for i, axis in enumerate(all_axes) if axis not in axes])
