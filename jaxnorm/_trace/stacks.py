"""Stacks: nodes with rows along an axis, each a sum of multiples of other nodes."""

import math
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from jaxnorm._paths import Path
from jaxnorm._trace.primitives import STACKS, SUMS
from jaxnorm._trace.values import Value
from jaxnorm._trace.views import SLICES, VIEWS, Factor, View, whole

#: Sum of nodes, each times a number, by their indices; a constant without any.
Row = dict[int, float]


class Stack(NamedTuple):
    """Node with rows along a part of its axes.

    Attributes:
        form: the node as a view of an array that has the rows along an axis of their own.
        axis: that axis of the array.
        rows: the rows.
    """

    form: View
    axis: int
    rows: tuple[Row, ...]

    @classmethod
    def along(cls, shape: tuple[int, ...], axis: int, rows: Iterable[Row]) -> "Stack":
        """Returns rows of one size, one after another along an axis of a node."""
        rows = tuple(rows)
        size = shape[axis] // len(rows)
        view = whole(Path(), (*shape[:axis], len(rows), size, *shape[axis + 1 :]))
        dims = list(view.dims)
        dims[axis : axis + 2] = [(*dims[axis], *dims[axis + 1])]
        return cls(view.with_dims(dims), axis, rows)

    @classmethod
    def uneven(cls, shape: tuple[int, ...], axis: int, rows: Iterable[Row]) -> "Stack":
        """Returns rows of several sizes: their axis counts entries."""
        return cls(whole(Path(), shape), axis, tuple(rows))

    def axis_of_rows(self) -> int | None:
        """Returns the node's axis along which all rows are, perhaps among other entries."""
        for axis, dim in enumerate(self.form.dims):
            sizes = [f.size for f in dim if f.axis == self.axis and not f.reversed]
            if math.prod(sizes) == self.form.shape[self.axis]:
                return axis
        return None

    def axis_of_blocks(self, alone: bool = False) -> int | None:
        """Returns the axis along which the rows are blocks; if ``alone``, of one entry each."""
        axis = self.axis_of_rows()
        factors = [] if axis is None else [f for f in self.form.dims[axis] if f.size > 1]
        are_blocks = factors[:1] == [Factor(self.axis, len(self.rows))]
        return axis if are_blocks and not (alone and factors[1:]) else None


#: ``(equation, operands, the stacks that the operands are, number of the result) -> stack``.
Rule = Callable[[Any, list[Value], list[Stack | None], int], Stack | None]


def stack_of(
    equation: Any, operands: list[Value], known: dict[int, Stack], which: int
) -> Stack | None:
    """Returns the stack that a result of an equation is; None if it is none."""
    rule = _RULES.get(equation.primitive.name)
    if rule is None or not math.prod(equation.outvars[which].aval.shape):
        return None
    stacks = [None if x.node is None else known.get(x.node) for x in operands]
    return rule(equation, operands, stacks, which)


def added(rows: Iterable[Row], number: float = 1.0) -> Row:
    """Returns the sum of rows, times a number."""
    total: Row = {}
    for row in rows:
        total |= {i: total.get(i, 0.0) + number * factor for i, factor in row.items()}
    return {i: factor for i, factor in total.items() if factor}


def rows_of(operand: Value) -> tuple[Row, ...]:
    """Returns an operand as a single row."""
    return ({} if operand.node is None else {operand.node: 1.0},)


def _stacked(
    equation: Any, operands: list[Value], stacks: list[Stack | None], which: int
) -> Stack | None:
    """Parts along an axis, some of which may be stacks along it."""
    params, shape = equation.params, equation.outvars[0].aval.shape
    axis = params["axis"] if "axis" in params else params["dimension"]
    parts, sizes = list[Row](), set[float]()
    for atom, operand, stack in zip(equation.invars, operands, stacks, strict=True):
        size = 1 if equation.primitive.name == "stack" else atom.aval.shape[axis]
        rows = stack.rows if stack and stack.axis_of_blocks() == axis else rows_of(operand)
        if size:
            sizes.add(size / len(rows))
            parts.extend(rows)
    return (Stack.along if len(sizes) == 1 else Stack.uneven)(shape, axis, parts)


def _padded(
    equation: Any, operands: list[Value], stacks: list[Stack | None], which: int
) -> Stack | None:
    """Zeros before, after and between rows."""
    config, before = equation.params["padding_config"], equation.invars[0].aval.shape
    axes = [axis for axis, numbers in enumerate(config) if any(numbers)]
    if len(axes) != 1 or operands[1].number != 0 or min(config[axes[0]]) < 0:
        return None
    ((axis,), (stack, _)) = axes, stacks
    rows = stack.rows if stack and stack.axis_of_blocks() == axis else rows_of(operands[0])
    low, high, between = config[axis]
    size = before[axis] // len(rows)
    if not size or low % size or high % size or (between and size > 1):
        return None
    spread = [x for row in rows for x in (row, *({} for _ in range(between)))]
    zeros: list[list[Row]] = [[{} for _ in range(number // size)] for number in (low, high)]
    inside = spread[: len(spread) - between]
    return Stack.along(equation.outvars[0].aval.shape, axis, [*zeros[0], *inside, *zeros[1]])


def _sliced(
    equation: Any, operands: list[Value], stacks: list[Stack | None], which: int
) -> Stack | None:
    """Some of the rows; one of them also if it is sliced itself."""
    stack, shape = stacks[0], equation.outvars[which].aval.shape
    axis = stack.axis_of_blocks() if stack else None
    if stack is None or axis is None:
        return None
    before = equation.invars[0].aval.shape
    size = before[axis] // len(stack.rows)
    first, last, step = _bounds(equation, axis, which)
    if first % size or last % size or (step > 1 and size > 1):
        return None
    rows = stack.rows[first // size : last // size : step]
    others = [i for i in range(len(shape)) if i != axis and shape[i] != before[i]]
    return Stack.along(shape, axis, rows) if rows and (len(rows) == 1 or not others) else None


def _bounds(equation: Any, axis: int, which: int) -> tuple[int, int, int]:
    """Returns the first index, the one after the last, and the step of a slice along an axis."""
    params, size = equation.params, equation.invars[0].aval.shape[axis]
    if equation.primitive.name == "slice":
        strides = params["strides"] or ()
        step = strides[axis] if strides else 1
        return params["start_indices"][axis], params["limit_indices"][axis], step
    if equation.primitive.name == "split" and params["axis"] == axis:
        first, last = [0, *accumulate(params["sizes"])][which : which + 2]
        return first, last, 1
    # The start of a dynamic slice is not known, unless it has the whole axis.
    is_whole = equation.outvars[which].aval.shape[axis] == size
    return 0, size if is_whole else 0, 1


def _viewed(
    equation: Any, operands: list[Value], stacks: list[Stack | None], which: int
) -> Stack | None:
    stack, rule = stacks[0], VIEWS[equation.primitive.name]
    form = rule(stack.form, equation, equation.outvars[0].aval.shape) if stack else None
    return stack._replace(form=form) if stack and form else None


def _accumulated(
    equation: Any, operands: list[Value], stacks: list[Stack | None], which: int
) -> Stack | None:
    """Sums of the rows so far."""
    stack, axis = stacks[0], equation.params["axis"]
    if stack is None or stack.axis_of_blocks(alone=True) != axis:
        return None
    order = -1 if equation.params["reverse"] else 1
    sums = list(accumulate(stack.rows[::order], lambda one, other: added((one, other))))
    return stack._replace(rows=tuple(sums[::order]))


def _combined(
    equation: Any, operands: list[Value], stacks: list[Stack | None], which: int
) -> Stack | None:
    """Sums or differences of the rows of two stacks along the same axis."""
    one, other = stacks
    if not one or not other or len(one.rows) != len(other.rows):
        return None
    if one.axis_of_blocks() is None or one.axis_of_blocks() != other.axis_of_blocks():
        return None
    sign = -1.0 if equation.primitive.name == "sub" else 1.0
    pairs = zip(one.rows, other.rows, strict=True)
    return one._replace(rows=tuple(added((row, added([by], sign))) for row, by in pairs))


def _scaled(
    equation: Any, operands: list[Value], stacks: list[Stack | None], which: int
) -> Stack | None:
    """Rows times a number."""
    name, (first, *others) = equation.primitive.name, operands
    stack = stacks[0] or (stacks[-1] if name == "mul" else None)
    constant = -1.0 if name == "neg" else (others[0] if stacks[0] else first).number
    if stack is None or constant is None or (name == "div" and not constant):
        return None
    number = 1 / constant if name == "div" else constant
    return stack._replace(rows=tuple(added([row], number) for row in stack.rows))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(VIEWS.keys() - {*SLICES}, _viewed),
    **dict.fromkeys(SLICES, _sliced),
    **dict.fromkeys(STACKS, _stacked),
    **dict.fromkeys((*SUMS, "sub"), _combined),
    **dict.fromkeys(("mul", "div", "neg"), _scaled),
    "pad": _padded,
    "cumsum": _accumulated,
}
