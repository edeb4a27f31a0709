"""Residual streams of a program: its sums of a stream with a branch, in the graph of its nodes.

The *distance* of one node from another is the number of kernels that every path between them
passes. A sum is one of a stream with a branch if one of its operands is at distance 0 from a node
from which the other operand is at distance 1 or more; or, for a shortcut with a kernel, at
distances 1 and 2 or more.
"""

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from jaxnorm._paths import Path, listed
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.rules import LINEAR, SUMS
from jaxnorm._trace.values import Node
from jaxnorm._trace.views import SLICES, VIEWS

#: Products of two values that both depend on the inputs, such as gates and attention.
_MULTIPLICATIONS = ("mul", "div", "dot_general")
#: Operations by which a factor of the operand is a factor of the result.
_LINEAR = (*LINEAR, *SUMS, "sub")


class Sum(NamedTuple):
    """Sum of a stream with a branch.

    Attributes:
        position: the sum.
        entry: the last node of the stream before the branch leaves or is added: an operand of the
            sum, or the input of a shortcut with a kernel.
        branch: the operand that is the branch.
        source: the node from which stream and branch come.
    """

    position: int
    entry: int
    branch: int
    source: int


class Branch(NamedTuple):
    """Last parameter of a branch.

    Attributes:
        path: the parameter.
        is_kernel: True for a kernel, False for a scale.
        is_scaled: True if a constant below 1 follows it in the branch or the stream.
        repeats: how often the branch is added, times its share of the units.
    """

    path: Path
    is_kernel: bool
    is_scaled: bool
    repeats: Fraction


def residual_streams(program: Program) -> list[list[Branch]]:
    """Returns the branches of each stream that reaches a result of a program with nodes."""
    nodes = program.facts.nodes or []
    for node in nodes:
        if node.primitive in ("while", "cond", "shard_map") and node.constant.sources:
            raise ValueError(
                f"the parameters {listed(sorted(node.constant.sources))} are used inside a "
                f"{node.primitive}, where residual_factors does not follow the stream; scale the "
                "last kernel of each branch by hand, with scale_branches(raw, factors)."
            )
    graph, stream_of = Graph(nodes), dict[int, list[Sum]]()
    live = graph.ancestors(*(x.node for x in program.results if x.node is not None))
    for item in (x for i in sorted(live) if (x := graph.residual_sum(i))):
        before = graph.ancestors_in_layer(item.entry) & stream_of.keys()
        stream = stream_of[item.position] = stream_of[max(before)] if before else []
        stream.append(item)
    streams = {id(stream): stream for stream in stream_of.values()}
    return [graph.branches(stream) for stream in streams.values()]


class Graph(NamedTuple):
    """Nodes of a program, in execution order."""

    nodes: list[Node]

    def ancestors(self, *indices: int, through_kernels: bool = True) -> set[int]:
        """Returns the nodes that reach any of these, which are included."""
        visited, stack = set[int](), [*indices]
        while stack:
            if (index := stack.pop()) not in visited:
                visited.add(index)
                node = self.nodes[index]
                stack.extend(node.operands if through_kernels or not node.is_product else ())
        return visited

    def ancestors_in_layer(self, index: int) -> set[int]:
        """Returns the nodes that reach one without passing a kernel, and itself."""
        return self.ancestors(index, through_kernels=False)

    def residual_sum(self, index: int) -> Sum | None:
        """Returns the sum of a stream with a branch that a node is, if it is one."""
        node = self.nodes[index]
        if node.primitive not in (*SUMS, "sub") or len(set(node.operands)) < 2:
            return None
        for least, before in ((0, self.ancestors_in_layer), (1, self.ancestors)):
            for near, far in (node.operands, node.operands[::-1]):
                source = max(before(near) & self.ancestors(far), default=index)
                distance = self._distances(source, index)
                differs = distance.get(near) == least < distance.get(far, 0)
                if differs and not (least and self._is_gated(near, far, distance)):
                    return Sum(index, source if least else near, far, source)
        return None

    def _is_gated(self, near: int, far: int, distance: dict[int, int]) -> bool:
        """Returns True if a product multiplies a shortcut, or a branch with another stream."""

        def multiplied(index: int) -> set[int | None]:
            nodes = [self.nodes[i] for i in self.ancestors(index) & distance.keys()]
            products = [node.operands for node in nodes if node.primitive in _MULTIPLICATIONS]
            factors = [{distance.get(i) for i in operands} for operands in products]
            return set[int | None]().union(*(x for x in factors if len(x) > 1))

        return bool(multiplied(near)) or None in multiplied(far)

    def _distances(self, start: int, end: int) -> dict[int, int]:
        """Returns the number of kernels that every path from ``start`` to later nodes passes.

        A product of two nodes (a gate, attention) is as far as the farther one. A slice of single
        entries of a stream, such as a time step, is no part of it; a slice of what a kernel made,
        such as the queries of attention, is part of a branch.
        """
        distance = {start: 0}
        for index in range(start + 1, end):
            node = self.nodes[index]
            known = [distance[i] for i in node.operands if i in distance]
            if known and not (max(known) == 0 and self._is_entry(node)):
                far = node.primitive in _MULTIPLICATIONS and not node.is_product
                distance[index] = (max(known) if far else min(known)) + node.is_product
        return distance

    def _is_entry(self, node: Node) -> bool:
        if node.primitive not in (*SLICES, "gather"):
            return False
        before, shape = self.nodes[node.operands[0]].shape, node.shape
        single = any(new == 1 < old for new, old in zip(shape, before, strict=False))
        return math.prod(shape) < math.prod(before) and (len(shape) < len(before) or single)

    def branches(self, stream: list[Sum]) -> list[Branch]:
        """Returns the last parameters of the branches of a stream."""
        # A constant after the last sum may be one of the classifier.
        scaled = any(self._is_scaled(item) for item in stream[:-1] or stream)
        return [branch for item in stream for branch in self._ends(item, scaled)]

    def _is_scaled(self, item: Sum) -> bool:
        """Returns True if a constant below 1 follows a sum in every use, in the same scan."""
        repeats = self.nodes[item.position].repeats
        after = [x for x in self.nodes[item.position + 1 :] if item.position in x.operands]
        return bool(after) and all(_is_small(x) and x.repeats == repeats for x in after)

    def _ends(self, item: Sum, scaled: bool) -> Iterator[Branch]:
        """Yields the last parameters of the branch of a sum."""
        inside = self._distances(item.source, item.branch + 1).keys() - {item.source}
        repeats = Fraction(self.nodes[item.position].repeats)
        stack, visited = [(item.branch, scaled, True, repeats)], {item.branch}
        while stack:
            index, scaled, linear, share = stack.pop()
            node = self.nodes[index]
            scaled = scaled or (linear and _is_small(node))
            linear = linear and (node.primitive in _LINEAR or _is_scaling(node))
            end, before = self._last(node, item.source)
            if end:
                yield Branch(_parameter(end), end.is_product, scaled, share)
            for i in (i for i in before if i in inside and i not in visited):
                visited.add(i)
                size = self.nodes[i].shape if node.primitive == "concatenate" else node.shape
                part = Fraction(math.prod(size), math.prod(node.shape))
                stack.append((i, scaled, linear, share * part))

    def _last(self, node: Node, source: int) -> tuple[Node | None, Iterable[int]]:
        """Returns the node that ends a branch, or the operands among which the end is.

        The scale of a normalization is the last node of its product. An activation such as silu
        is the product of two functions of one node, which leads to the end. In a product with a
        gate of fewer entries the gated node leads to the end.
        """
        if node.is_product or _has_scale(node):
            return node, ()
        if node.primitive not in _MULTIPLICATIONS or len(node.operands) < 2:
            return None, node.operands
        for i, j in (node.operands, node.operands[::-1]):
            viewed = self._viewed(i)
            if _has_scale(self.nodes[viewed]) and viewed not in self.ancestors_in_layer(j):
                return self.nodes[viewed], ()
        common = self._activated(node)
        if common is not None:
            return None, (common,)
        full = [i for i in node.operands if self.nodes[self._viewed(i)].shape == node.shape]
        one, other = (self._kernels(i, source) for i in node.operands)
        if len(full) == 1 and one.isdisjoint(other):
            return None, full
        raise ValueError(
            "a branch ends in a product of two values, or is normalized after its last kernel, "
            f"so that no one factor of a kernel scales it: {listed(sorted(one | other))}. Add a "
            "scale after it, or scale its last kernel by hand."
        )

    def _activated(self, node: Node) -> int | None:
        """Returns the node of which a product of two nodes is an elementwise function."""
        one, other = (self.ancestors_in_layer(i) for i in node.operands)
        common = max(one & other, default=None)
        if common is None:
            return None
        between = {i for i in one | other if i >= common and common in self.ancestors_in_layer(i)}
        return common if {self.nodes[i].shape for i in between} == {node.shape} else None

    def _viewed(self, index: int) -> int:
        """Returns the node of which a node is a view of all entries."""
        while self.nodes[index].primitive in VIEWS.keys() - {*SLICES}:
            index = self.nodes[index].operands[0]
        return index

    def _kernels(self, index: int, source: int) -> frozenset[Path]:
        """Returns the last kernels before a node."""
        nodes = [self.nodes[i] for i in self.ancestors_in_layer(index) if i > source]
        return frozenset(p for node in nodes if node.is_product for p in node.constant.sources)


def _has_scale(node: Node) -> bool:
    return node.primitive == "mul" and bool(node.constant.factors)


def _is_scaling(node: Node) -> bool:
    return node.primitive in ("mul", "div") and len(node.operands) == 1


def _is_small(node: Node) -> bool:
    """Returns True for the product with a constant of a size below 1."""
    number = node.constant.number
    if number is None or not _is_scaling(node):
        return False
    return abs(number) > 1 if node.primitive == "div" else abs(number) < 1


def _parameter(node: Node) -> Path:
    if len(node.constant.factors) != 1:
        raise ValueError(
            "no one parameter is a factor of the last kernel of a branch, which is a function of "
            f"{listed(sorted(node.constant.sources))}. Add a scale after it, or scale the branch "
            "by hand."
        )
    return next(iter(node.constant.factors))
