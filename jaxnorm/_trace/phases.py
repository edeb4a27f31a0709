"""Phases of the outputs of a transposed convolution with a stride: the taps that each reads."""

from typing import Any, NamedTuple

from jaxnorm._phases import strides_of
from jaxnorm._trace.values import Use


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
