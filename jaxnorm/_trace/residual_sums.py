"""Sums of a stream and a branch, in the graph of a program's nodes.

Such a sum has one operand at distance 0 from a node, the source, from which the other operand is at
distance 1 or more; or, for a shortcut with a kernel, at distances 1 and 2 or more. A shortcut of
several kernels in a row, such as a depthwise and a pointwise one, is a linear function of the
source, which the branch is not, and no farther than the branch.
"""

import functools
import math
from typing import Literal, NamedTuple

from jaxnorm._trace.facts import Facts
from jaxnorm._trace.graph import MULTIPLICATIONS, Graph, Node, is_rest
from jaxnorm._trace.primitives import LINEAR, STACKS, SUMS

#: A sum with a shortcut without or with a kernel; of two streams, or of a stream with a decoder's
#: result; of a kernel's product with that of several kernels, all linear.
Kind = Literal["identity", "projection", "merge", "adapter"]


class Sum(NamedTuple):
    """Sum of two operands, of which one is computed from where the other comes from.

    Attributes:
        position: the sum.
        kind: what the operands are.
        entry: the last node of the stream before the branch leaves or is added: an operand of the
            sum, or the input of a shortcut with a kernel.
        shortcut: the operand that is the stream.
        branch: the operand that is the branch.
        sources: the nodes from which stream and branch come.
    """

    position: int
    kind: Kind
    entry: int
    shortcut: int
    branch: int
    sources: frozenset[int]

    @property
    def source(self) -> int:
        """The last of the sources."""
        return max(self.sources)


def residual_graph(facts: Facts) -> "ResidualGraph":
    """Returns the graph of a program's nodes: one for all that ask, since its answers are kept."""
    if facts.graph is None:
        facts.graph = ResidualGraph(facts.nodes or [])
    graph: ResidualGraph = facts.graph
    return graph


class ResidualGraph(Graph):
    """Graph that knows which of its nodes are sums of a stream and a branch."""

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__(nodes)
        self.sum_at = functools.cache(self._sum_at)

    def residual_sum(self, index: int) -> Sum | None:
        """Returns the sum of a stream with a branch that a node is, if it is one."""
        item = self.sum_at(index)
        return item if item and item.kind in ("identity", "projection") else None

    def _sum_at(self, index: int) -> Sum | None:
        """Returns the sum that a node is, if one operand comes from where the other does."""
        node = self.nodes[index]
        if node.primitive not in (*SUMS, "sub") or len(set(node.operands)) < 2:
            return None
        one, other = node.operands
        for least in (0, 1, 2):
            pairs = (one, other), (other, one)
            sums = [x for pair in pairs if (x := self._sum_of(index, *pair, least))]
            if len(sums) == 2 and not least:
                return sums[0]._replace(kind="merge")  # each comes from the other: two streams
            if sums:
                return next((x for x in sums if x.kind != "merge"), sums[0])
        return None

    def _sum_of(self, index: int, near: int, far: int, least: int) -> Sum | None:
        """Returns the sum of a stream and a branch at these distances from common sources.

        The shortcut is at a distance of 0 or 1, or, for 2, of two linear kernels or more.
        """
        before = self.ancestors(near) if least else self.ancestors_in_layer(near)
        candidates, fits = before & self.ancestors(far, since=min(before)), list[int]()
        while candidates and not fits:
            latest = self.latest(candidates)
            real = [x for x in latest if self.nodes[x].is_real]
            fits = [x for x in real if self._fits(x, near, far, least)]
            # A kernel's product may be in both operands: gates, or what is added twice.
            first = min(candidates)
            candidates -= self.ancestors(*latest, through_kernels=bool(least), since=first)
        if not fits or self._is_complement(near, far):
            return None
        sources = frozenset(fits)
        if not least:
            merges = self._is_decoded(sources, near, far) or self._is_stream(sources, far)
            return Sum(index, "merge" if merges else "identity", near, near, far, sources)
        if self._is_linear(sources, far) and self._is_linear(sources, near):
            return Sum(index, "adapter", max(fits), near, far, sources)
        if self._is_lifted(sources, near, far):
            return None
        return Sum(index, "projection", max(fits), near, far, sources)

    def _fits(self, source: int, near: int, far: int, least: int) -> bool:
        distance = self.distances({source}, max(near, far) + 1)
        if least < 2:
            fits = distance.get(near) == least and distance.get(far, 0) >= least + 1
        else:
            fits = self._is_linear_shortcut(source, near, far, distance)
        return fits and not (least and self._is_gated(near, far, distance))

    def _is_linear_shortcut(
        self, source: int, near: int, far: int, distance: dict[int, float]
    ) -> bool:
        """Returns True for several linear kernels beside a branch of as many or more."""
        is_as_far = 2 <= distance.get(near, 0) <= distance.get(far, 0)
        sources = frozenset([source])
        return is_as_far and self._is_linear(sources, near) and not self._is_linear(sources, far)

    def _is_gated(self, near: int, far: int, distance: dict[int, float]) -> bool:
        """Returns True if a product multiplies a shortcut, or a branch with another stream."""

        def multiplied(index: int) -> set[float | None]:
            found = self.ancestors(index, since=min(distance))
            nodes = [self.nodes[i] for i in found & distance.keys()]
            products = [node.operands for node in nodes if node.primitive in MULTIPLICATIONS]
            factors = [{distance.get(i) for i in operands} for operands in products]
            return set[float | None]().union(*(x for x in factors if len(x) > 1))

        return bool(multiplied(near)) or None in multiplied(far)

    def _is_complement(self, near: int, far: int) -> bool:
        """Returns True for a m + b (1 - m): a choice between two values."""
        one, other = (self._factors(index) for index in (near, far))
        return any(self._is_rest_of(i, j) or self._is_rest_of(j, i) for i in one for j in other)

    def _factors(self, index: int) -> list[int]:
        """Returns the factors of a product of two nodes."""
        node = self.nodes[self.viewed(index)]
        is_product = node.primitive == "mul" and len(node.operands) == 2
        return [self.viewed(i) for i in node.operands] if is_product else []

    def _is_rest_of(self, index: int, other: int) -> bool:
        """Returns True if a node is 1 - m of another one, m."""
        node = self.nodes[index]
        return is_rest(node) and self.viewed(node.operands[0]) == other

    # Merges.

    def _is_decoded(self, sources: frozenset[int], near: int, far: int) -> bool:
        """Returns True if all of a branch comes from a stream at other positions.

        That stream starts from this one, as the lower levels of a U-Net do.
        """
        positions, between = self._positions(near), self.between(sources, far)
        sums = [item for i in sorted(between) if (item := self.sum_at(i))]
        starting = [x for x in sums if x.kind != "adapter" and x.entry in between | sources]
        places = [item.position for item in starting]
        levels = {i for i in places if self._positions(i) not in (0, positions)}
        return bool(positions and levels) and self.passes(sources, far, levels)

    def _positions(self, index: int) -> int:
        """Returns how many entries each unit has in a node after a kernel; 0 if there is none."""
        products = self.last_products(index)
        if not products:
            return 0
        node = self.nodes[index]
        return math.prod(node.shape) * node.repeats // self.nodes[max(products)].units

    def _is_lifted(self, sources: frozenset[int], near: int, far: int) -> bool:
        """Returns True if all of an operand was computed at fewer positions than the shortcut."""
        nodes = self.nodes
        products = [i for i in self.between(sources, near) if nodes[i].is_product]
        positions = max((nodes[i].positions for i in products), default=0)
        between = self.between(sources, far)
        few = {i for i in between if nodes[i].is_product and nodes[i].positions < positions}
        return self.passes(sources, far, few)

    def _is_stream(self, sources: frozenset[int], far: int) -> bool:
        """Returns True if nothing but another stream is in an operand."""
        others = self.other_streams(sources, far)
        if not others:
            return False
        inside = self.between(sources, far) - others
        walked = self.reached(
            far, before=lambda i: () if i in others else self.nodes[i].operands_in_layer
        )
        return not any(self.nodes[i].is_product for i in walked & inside)

    def other_streams(self, sources: frozenset[int], far: int) -> set[int]:
        """Returns the sums of streams before an operand that do not come from these sources."""
        inside, before = self.between(sources, far) | sources, self.ancestors(*sources)
        sums = [item for i in self.ancestors_in_layer(far) if (item := self.sum_at(i))]
        return {
            item.position
            for item in sums
            if item.kind == "identity" and item.position not in before and item.entry not in inside
        }

    def _is_linear(self, sources: frozenset[int], end: int) -> bool:
        """Returns True if a node is a linear function of the sources, for fixed masks."""
        between = self.between(sources, end)
        inside = between | sources

        def is_linear(node: Node) -> bool:
            before = [place for place, i in enumerate(node.operands) if i in inside]
            if node.primitive in (*LINEAR, *SUMS, "sub", *STACKS, "select_n"):
                return node.is_real
            one = node.primitive in MULTIPLICATIONS or node.is_product
            return one and (before == [0] or (len(before) == 1 and node.primitive != "div"))

        return all(is_linear(self.nodes[i]) for i in between)
