"""Numbers per phase and channel of a transposed convolution, at its outputs and at its taps."""

from collections.abc import Callable, Sequence
from itertools import product

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._node import Axes
from jaxnorm._trace.phases import OutputPhase

Values = Float[Array, "..."]
Phases = Sequence[OutputPhase]


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
