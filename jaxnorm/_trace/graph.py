"""Graph of a program's nodes: ancestors, and distances in kernels.

The *distance* of one node from another is the number of kernels that every path between them
passes.
"""

import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from jaxnorm._trace.primitives import PARTS
from jaxnorm._trace.values import Value
from jaxnorm._trace.views import SLICES, VIEWS

#: Products of two values that both depend on the inputs, such as gates and attention.
MULTIPLICATIONS = ("mul", "div", "dot_general")
#: Distance of one entry of a node, such as a time step of a sequence, which is no stream any more.
_ENTRY = 0.5


class Node(NamedTuple):
    """Variable that depends on the inputs, in the graph of a program with its calls inlined.

    Attributes:
        primitive: the name of the operation that computes it.
        operands: the indices of the operands that depend on the inputs.
        constant: the only other operand, or the sources of several.
        shape: its shape.
        units: how many units the kernel has that multiplies it; 0 if it is no kernel's product.
        is_real: True for floating-point numbers; False for indices and masks.
        turns: the number and the length of each scan around it, the outermost first.
        carries: the number of the scan that carries it from turn to turn, if one does.
        place: the place of its equation; None for an input or what a scan hands on.
    """

    primitive: str
    operands: tuple[int, ...]
    constant: Value
    shape: tuple[int, ...]
    units: int = 0
    is_real: bool = True
    turns: tuple[tuple[int, int], ...] = ()
    carries: int | None = None
    place: tuple[int, ...] | None = None

    @property
    def is_product(self) -> bool:
        """True for the product of a variable with a kernel."""
        return self.units > 0

    @property
    def operands_in_layer(self) -> tuple[int, ...]:
        """The operands that no kernel separates from the node."""
        return () if self.is_product else self.operands

    @property
    def repeats(self) -> int:
        """Number of times that the scans around it run it."""
        return math.prod(length for _, length in self.turns)

    @property
    def positions(self) -> int:
        """Number of entries of each unit of a product, in all turns of the scans around it."""
        return math.prod(self.shape) * self.repeats // self.units


class Graph:
    """Nodes of a program, in execution order."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def reached(
        self, *starts: int, before: Callable[[int], Iterable[int]], since: int = 0
    ) -> set[int]:
        """Returns the nodes that a walk backwards comes to, the first ones included.

        ``before`` returns the operands of a node to which the walk goes on, down to one node.
        """
        visited, stack = set[int](), [*starts]
        while stack:
            if (index := stack.pop()) >= since and index not in visited:
                visited.add(index)
                stack.extend(before(index))
        return visited

    def ancestors(self, *indices: int, through_kernels: bool = True, since: int = 0) -> set[int]:
        """Returns the nodes that reach any of these, which are included, from one node on."""
        nodes = self.nodes
        if through_kernels:
            return self.reached(*indices, before=lambda i: nodes[i].operands, since=since)
        return self.reached(*indices, before=lambda i: nodes[i].operands_in_layer, since=since)

    def ancestors_in_layer(self, index: int) -> set[int]:
        """Returns the nodes that reach one without passing a kernel, and itself."""
        return self.ancestors(index, through_kernels=False)

    def last_products(self, index: int, through_masks: bool = True) -> set[int]:
        """Returns the last kernels' products before a node; through masks, also by comparisons."""

        def passed(indices: Iterable[int]) -> list[int]:
            return [i for i in indices if through_masks or self.nodes[i].is_real]

        before = self.reached(
            *passed([index]), before=lambda i: passed(self.nodes[i].operands_in_layer)
        )
        return {i for i in before if self.nodes[i].is_product}

    def between(self, sources: Collection[int], end: int) -> set[int]:
        """Returns the nodes on the paths from any of the sources to an end, which is included."""
        reached = {*sources}
        for index in range(min(sources) + 1, end + 1):
            if not reached.isdisjoint(self.nodes[index].operands):
                reached.add(index)
        return (reached & self.ancestors(end, since=min(sources))) - {*sources}

    def passes(self, sources: Collection[int], end: int, gates: Collection[int]) -> bool:
        """Returns True if every path from the sources to an end passes one of the gates."""
        stops = {*sources, *gates}
        before = self.reached(end, before=lambda i: () if i in stops else self.nodes[i].operands)
        return before.isdisjoint(sources)

    def distances(self, sources: Collection[int], end: int) -> dict[int, float]:
        """Returns the number of kernels that every path from the sources to later nodes passes.

        A product of two nodes (a gate, attention) is as far as the farther one. A single entry of a
        stream, such as a time step, is no part of it; an entry of what a kernel made, such as the
        queries of attention, is part of a branch.
        """
        distance = dict.fromkeys(sources, 0.0)
        for index in range(min(sources) + 1, end):
            node = self.nodes[index]
            known = [distance[i] for i in node.operands if i in distance]
            if known and index not in sources:
                far = node.primitive in MULTIPLICATIONS and not node.is_product
                least = max(known) if far else min(known)
                is_entry = least == 0 and self._is_entry(node)
                distance[index] = _ENTRY if is_entry else least + node.is_product
        return distance

    def _is_entry(self, node: Node) -> bool:
        """Returns True for one index along an axis, which the node has no more."""
        part = self.nodes[node.operands[0]] if node.primitive in ("squeeze", "reshape") else node
        whole = self.nodes[part.operands[0]] if part.operands else part
        return is_entry(part, whole) and len(node.shape) < len(whole.shape)

    def latest(self, indices: set[int]) -> list[int]:
        """Returns the nodes that reach no other of them."""
        left, latest = set(indices), list[int]()
        while left:
            latest.append(max(left))
            left -= self.ancestors(latest[-1], since=min(left))
        return latest

    def viewed(self, index: int) -> int:
        """Returns the node of which a node is a view of all entries."""
        while self.nodes[index].primitive in VIEWS.keys() - {*SLICES}:
            index = self.nodes[index].operands[0]
        return index

    def is_small(self, node: Node) -> bool:
        """Returns True for the product with a constant of a size below 1, except in a mean."""
        number = node.constant.number
        if number is None or not is_scaling(node):
            return False
        divides = node.primitive == "div"
        is_small = abs(number) > 1 if divides else abs(number) < 1
        return is_small and not self._is_mean(node, number if divides else 1 / (number or 1))

    def _is_mean(self, node: Node, divisor: float) -> bool:
        """Returns True for a sum of entries over their number."""
        total = self.nodes[self.viewed(node.operands[0])]
        if total.primitive != "reduce_sum":
            return False
        entries = math.prod(self.nodes[total.operands[0]].shape)
        return math.isclose(divisor * math.prod(total.shape), entries, rel_tol=1e-6)


def is_entry(node: Node, whole: Node) -> bool:
    """Returns True for one index along an axis of another node; not for a part of its features."""
    if node.primitive not in (*PARTS, "scan") or math.prod(node.shape) >= math.prod(whole.shape):
        return False
    same_rank = len(node.shape) == len(whole.shape)
    pairs = zip(node.shape, whole.shape, strict=False)
    return not same_rank or any(new == 1 < old for new, old in pairs)


def is_scaling(node: Node) -> bool:
    """Returns True for the product or quotient of one node and a constant."""
    return node.primitive in ("mul", "div") and len(node.operands) == 1


def is_rest(node: Node) -> bool:
    """Returns True for 1 - m of a node m."""
    return node.primitive == "sub" and len(node.operands) == 1 and node.constant.number == 1


def has_scale(node: Node) -> bool:
    """Returns True for a product with a parameter."""
    return node.primitive == "mul" and bool(node.constant.factors)
