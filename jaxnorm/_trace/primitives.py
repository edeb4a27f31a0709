"""Primitives by kind, and the axes that the equations of products join."""

import math
from typing import Any

from jaxnorm._trace.views import SLICES, VIEWS

PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")
SUMS = ("add", "add_any")
AFFINE = (*SUMS, "sub", "mul", "div", "neg")
STACKS = ("stack", "concatenate")
#: Functions by which a variance becomes a factor.
ROOTS = ("rsqrt", "sqrt", "pow")
#: Primitives that add updates to an array, at some of its places, or subtract them.
SCATTERS = ("scatter-add", "scatter_add", "scatter-sub")
#: Primitives that take a part of an array.
PARTS = (*SLICES, "gather")
#: Primitives that are linear in their first operand, unless they cast it to integers or pad it with
#: other numbers than 0. A scatter's node has the updates first; its array is another term.
LINEAR = (
    *(*VIEWS, "device_put", "gather", "neg", "optimization_barrier", "pad"),
    *("cumsum", "reduce_sum", "reduce_window_sum", *SCATTERS),
)


def product_axes(equation: Any, side: int) -> tuple[tuple[int, ...], int, dict[int, int]]:
    """Returns the axes of one operand that a product sums over, and the places of the others.

    A matrix product has the batch axes first, then the left operand's free axes, then the right's;
    between the two is the number of batch axes.
    """
    ragged = equation.params.get("ragged_dot_dimension_numbers")
    numbers = ragged.dot_dimension_numbers if ragged else equation.params["dimension_numbers"]
    if equation.primitive.name == "conv_general_dilated":
        return tuple(numbers.rhs_spec[1:]), 0, {numbers.rhs_spec[0]: numbers.out_spec[1]}
    contracted, batch = numbers
    used = [{*contracted[0], *batch[0]}, {*contracted[1], *batch[1], *row_groups(equation)}]
    free = [[a for a in range(equation.invars[i].aval.ndim) if a not in used[i]] for i in (0, 1)]
    order = [*batch[side], *((None,) * len(free[0]) if side else ()), *free[side]]
    places = {axis: place for place, axis in enumerate(order) if axis is not None}
    return tuple(contracted[side]), len(batch[0]), places


def phase_steps(equation: Any) -> dict[int, int]:
    """Returns how many taps lie between two that meet in one output, by the kernel's axis.

    Between the inputs of a convolution with a dilated left operand are zeros.
    """
    if equation.primitive.name != "conv_general_dilated":
        return {}
    positions = equation.params["dimension_numbers"].rhs_spec[2:]
    dilations = equation.params["lhs_dilation"], equation.params["rhs_dilation"]
    steps = [stride // math.gcd(stride, taps) for stride, taps in zip(*dilations, strict=True)]
    sizes = equation.invars[1].aval.shape
    return {
        axis: step
        for axis, step in zip(positions, steps, strict=True)
        if step > 1 and sizes[axis] > 1
    }


def row_groups(equation: Any) -> tuple[int, ...]:
    """Returns the axes of a ragged product's right operand that count groups of rows."""
    ragged = equation.params.get("ragged_dot_dimension_numbers")
    return tuple(ragged.rhs_group_dimensions) if ragged else ()
