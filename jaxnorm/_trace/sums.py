"""Sums of nodes, in whatever equations they are written.

``x + f`` may be a sum over an axis along which x and f were stacked or concatenated, the last
entry of their cumulative sum, their product with constants, or a scatter that adds f to x.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxnorm._trace.graph import Node
from jaxnorm._trace.primitives import SCATTERS, SUMS, product_axes
from jaxnorm._trace.stacks import Row, Stack, added, rows_of, stack_of
from jaxnorm._trace.values import CONSTANT, Value


class Sums(NamedTuple):
    """Nodes of a program, to which those of its sums are added.

    Attributes:
        nodes: the nodes.
        stacks: the stacks among them, by their indices.
        turns: the scans around the current equation.
    """

    nodes: list[Node]
    stacks: dict[int, Stack]
    turns: tuple[tuple[int, int], ...]

    def sum_of(self, equation: Any, operands: list[Value], which: int) -> int | None:
        """Returns the node of a result of an equation, if it is a sum or one of other nodes."""
        name, shape = equation.primitive.name, equation.outvars[which].aval.shape
        if name in SCATTERS:
            return self._scattered(equation, operands)
        if name == "reduce_sum":
            return self._reduced(operands[0], equation.params["axes"], shape)
        if name == "dot_general":
            return self._weighted(equation, operands)
        stack = stack_of(equation, operands, self.stacks, which)
        single = stack.rows[0] if stack and len(stack.rows) == 1 else {}
        return self._resized(self._row(single), shape) if single else None

    def note(self, equation: Any, operands: list[Value], which: int, node: int) -> None:
        """Notes the stack that the node of a result of an equation is."""
        if stack := stack_of(equation, operands, self.stacks, which):
            self.stacks[node] = stack

    # Equations.

    def _reduced(
        self, operand: Value, axes: tuple[int, ...], shape: tuple[int, ...], number: float = 1.0
    ) -> int | None:
        """Returns the node of the sum over the rows of a stack, times a number."""
        stack = self._stack(operand)
        row = added(stack.rows, number) if stack and axes == (stack.axis_of_blocks(True),) else {}
        return self._resized(self._row(row), shape) if row else None

    def _weighted(self, equation: Any, operands: list[Value]) -> int | None:
        """Returns the node of a sum of the rows of a stack that constants weight."""
        side = 0 if operands[1].node is None else 1
        constant, stack = operands[1 - side], self._stack(operands[side])
        axes, shape = product_axes(equation, side)[0], equation.outvars[0].aval.shape
        if stack is None or constant.node is not None or constant.sources:
            return None
        if constant.number is not None:
            total = self._reduced(operands[side], axes, shape, constant.number)
            if total is not None:
                return total
        parts = _parts(stack.rows) if stack.axis_of_rows() in axes else []
        weighted = [self._add("dot_general", (i,), shape, constant) for i in parts]
        return self._total(weighted) if weighted else None

    def _scattered(self, equation: Any, operands: list[Value]) -> int | None:
        """Returns the node of the sum of an array and of what is added at places of it."""
        base, places, updates = operands
        name, shape = equation.primitive.name, equation.outvars[0].aval.shape
        numbers, stack = equation.params["dimension_numbers"], self._stack(updates)
        axis = stack.axis_of_rows() if stack else None
        is_window = axis in (None, *numbers.update_window_dims) or numbers.operand_batching_dims
        parts = _parts(rows_of(updates) if is_window or not stack else stack.rows)
        if len(parts) < (1 if base.node is not None else 2):
            return None
        indices = () if places.node is None else (places.node,)
        total = self._total([self._add(name, (i, *indices), shape) for i in parts])
        if base.node is None:
            return total
        return self._sum("sub" if name == "scatter-sub" else "add", (base.node, total))

    def _stack(self, operand: Value) -> Stack | None:
        return None if operand.node is None else self.stacks.get(operand.node)

    # Nodes.

    def _row(self, row: Row) -> int:
        """Returns the node of a row."""
        row = self._as_before_views(row)
        numbers = {*row.values()}
        common = numbers.pop() if len(numbers) == 1 else 1.0
        total = self._total([self._times(i, row[i] / common) for i in sorted(row)])
        return self._times(total, common)

    def _as_before_views(self, row: Row) -> Row:
        """Returns the nodes that got an axis to be concatenated along, if all have one shape."""
        plain = {self._before_view(i): number for i, number in row.items()}
        shapes = {self.nodes[i].shape for i in plain}
        return plain if len(plain) == len(row) and len(shapes) == 1 else row

    def _before_view(self, index: int) -> int:
        node = self.nodes[index]
        if node.primitive not in ("broadcast_in_dim", "reshape") or len(node.operands) != 1:
            return index
        (before,) = node.operands
        same = [n for n in self.nodes[before].shape if n > 1] == [n for n in node.shape if n > 1]
        return before if same else index

    def _times(self, index: int, number: float) -> int:
        shape, constant = self.nodes[index].shape, Value(number=number)
        return index if number == 1 else self._add("mul", (index,), shape, constant)

    def _total(self, terms: list[int]) -> int:
        """Returns the node of the sum of nodes, one after another."""
        total, *others = terms
        for term in others:
            total = self._sum("add", (total, term))
        return total

    def _sum(self, primitive: str, pair: tuple[int, int]) -> int:
        """Returns the node of two nodes' sum or difference, which may be there already."""
        for index, node in enumerate(self.nodes if primitive in SUMS else ()):
            if node.primitive in SUMS and node.turns == self.turns and {*node.operands} == {*pair}:
                return index
        return self._add(primitive, pair, self.nodes[pair[0]].shape)

    def _resized(self, index: int, shape: tuple[int, ...]) -> int:
        """Returns the node of a node in another shape, or of a part or copies of its entries."""
        if self.nodes[index].shape == shape:
            return index
        before, after = math.prod(self.nodes[index].shape), math.prod(shape)
        primitive = "reshape" if before == after else "slice"
        return self._add(primitive if before >= after else "broadcast_in_dim", (index,), shape)

    def _add(
        self,
        primitive: str,
        operands: tuple[int, ...],
        shape: tuple[int, ...],
        constant: Value = CONSTANT,
    ) -> int:
        is_real = self.nodes[operands[0]].is_real
        self.nodes.append(
            Node(primitive, operands, constant, shape, is_real=is_real, turns=self.turns)
        )
        return len(self.nodes) - 1


def _parts(rows: Iterable[Row]) -> list[int]:
    """Returns the nodes of rows, in execution order."""
    return sorted({index for row in rows for index in row})
