"""Residual streams of a program: the sums along each, and the parameters that end their branches.

A sum whose shortcut has a kernel is one of a stream if other sums of the stream have a shortcut
without one, and if it is not inside of a branch: then it may be that of a recurrent layer, of
messages or of a pyramid.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from jaxnorm._paths import Path, listed
from jaxnorm._trace.graph import (
    MULTIPLICATIONS,
    Graph,
    Node,
    has_scale,
    is_entry,
    is_scaling,
)
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.primitives import LINEAR, PARTS, STACKS, SUMS
from jaxnorm._trace.residual_sums import ResidualGraph, Sum, residual_graph
from jaxnorm._trace.views import SLICES, VIEWS

#: Operations by which a factor of the operand is a factor of the result.
_LINEAR = (*LINEAR, *SUMS, "sub")


#: Operations by which a gate is made of another: views, 1 - g, g over a sum, and i == 2.
_OF_ONE_NUMBER = (*VIEWS, "add", "div", "eq", "mul", "neg", "scan", "sub")


class Branch(NamedTuple):
    """Last parameter of a branch.

    Attributes:
        path: the parameter.
        is_kernel: True for a kernel, False for a scale.
        is_scaled: True if a constant below 1 follows it in the branch or the stream.
        repeats: how often the branch is added, times its share of the units and of the experts
            under a gate; 0 for an adapter beside another kernel.
        position: the sum; after two streams have merged it is one of both.
    """

    path: Path
    is_kernel: bool
    is_scaled: bool
    repeats: Fraction
    position: int


class Gate(NamedTuple):
    """Factor of a branch, entry by entry, or of an expert, of which it is one number per row.

    Attributes:
        node: its index among the nodes of the program.
        product: that of the product with it, or of the choice by it.
    """

    node: int
    product: int


class End(NamedTuple):
    """Node in a branch, on the way from the sum to the branch's last parameters.

    Attributes:
        position: the node.
        is_scaled: True if a constant below 1 follows it.
        is_linear: True if only linear operations follow it in the branch.
        share: its share of the units of the branch.
        gate: the gate that multiplies it, if one does.
    """

    position: int
    is_scaled: bool
    is_linear: bool = True
    share: Fraction = Fraction(1)
    gate: Gate | None = None


class Streams(NamedTuple):
    """Residual streams of a program.

    Attributes:
        branches: the branches of each stream that reaches a result.
        refusal: why the branches of a stream are unknown; empty if they are known.
    """

    branches: list[list[Branch]]
    refusal: str = ""


class NoUniqueEndError(ValueError):
    """Raised for a branch that no factor of one parameter scales."""


def residual_streams(program: Program) -> Streams:
    """Returns the streams of a program with nodes."""
    nodes = program.facts.nodes or []
    for node in nodes:
        if node.primitive in ("while", "cond", "shard_map") and node.constant.sources:
            return Streams(
                [],
                f"the parameters {listed(sorted(node.constant.sources))} are used inside a "
                f"{node.primitive}, where residual_factors does not follow the stream; scale the "
                "last kernel of each branch by hand, with scale_branches(raw, factors), and pass "
                "quiet=False to normalizer_free, or fitted=False to moving_average_normalization.",
            )
    graph = residual_graph(program.facts)
    streams = [x for x in stream_sums(graph, program) if not _is_added_to_inputs(graph, x)]
    outers = [item for stream in streams for item in stream if item.kind == "identity"]
    inside = {i for x in outers for i in graph.between(x.sources, x.branch)}
    try:
        return Streams([b for stream in streams if (b := _known(graph, stream, inside))])
    except NoUniqueEndError as error:
        return Streams([], str(error))


def stream_sums(graph: ResidualGraph, program: Program) -> list[list[Sum]]:
    """Returns the sums of each stream that reaches a result, in execution order."""
    live = graph.ancestors(*program.result_nodes())
    sums = [item for i in sorted(live) if (item := graph.sum_at(i)) and item.kind != "adapter"]
    outers = [item for item in sums if item.kind == "identity"]
    return _streams(graph, sums, _first_sums(graph, sums, outers))


def begins_with_kernel(graph: ResidualGraph, item: Sum) -> bool:
    """Returns True if the stream of a sum has a kernel, a table or learned latents before it.

    Its branches do not count, except those of other turns of a scan: a stream that has nothing but
    its inputs beside them is a network that is added to its inputs.
    """

    def begins(index: int) -> bool:
        return graph.nodes[index].is_product or _is_learned(graph.nodes[index])

    def before(index: int) -> Sequence[int]:
        stream = graph.sum_at(index)
        is_branched = stream and stream.kind == "identity"
        operands = [stream.shortcut] if stream and is_branched else graph.nodes[index].operands
        return () if begins(index) else operands

    return any(map(begins, graph.reached(item.shortcut, before=before)))


def _is_added_to_inputs(graph: ResidualGraph, stream: list[Sum]) -> bool:
    """Returns True for the one sum of a network and its inputs, which has no other branch."""
    return len(stream) == 1 and not begins_with_kernel(graph, stream[0])


def _is_learned(node: Node) -> bool:
    """Returns True for parameters, for rows of them, and for what a scan makes with kernels."""
    is_row = node.primitive in PARTS and bool(node.constant.sources)
    return is_row or node.primitive in ("parameter", "carry")


def _known(graph: ResidualGraph, stream: list[Sum], inside: set[int]) -> list[Branch]:
    """Returns the branches of a stream; none for that of a single sum inside of a branch.

    Its factor is 1, whatever ends it. A stream that starts inside of a branch needs no end either.
    """
    starts_inside = stream[0].sources <= inside
    if len(stream) == 1 and stream[0].position in inside and _repeats(graph, stream[0]) == 1:
        return []
    try:
        return stream_branches(graph, stream)
    except NoUniqueEndError:
        if starts_inside:
            return []
        raise


def _streams(graph: ResidualGraph, sums: list[Sum], first: set[int]) -> list[list[Sum]]:
    """Returns the sums of each stream with a sum whose shortcut has no kernel.

    After a merge each of the streams goes on, except one that another comes from.
    """
    streams: list[list[Sum]] = []
    joined: dict[int, set[int]] = {}
    for item in sums:
        before = graph.ancestors_in_layer(item.entry) & joined.keys()
        if before and item.position not in first:
            numbers = set[int]().union(*(joined[i] for i in graph.latest(before)))
        else:
            numbers = {len(streams)}
            streams.append([])
        for number in numbers:
            streams[number].append(item)
        if item.kind != "merge":
            joined[item.position] = numbers
    kinds = [{item.kind for item in stream} for stream in streams]
    pairs = zip(streams, kinds, strict=True)
    return [stream for stream, kind in pairs if kind - {"projection"} and kind - {"merge"}]


def _first_sums(graph: ResidualGraph, sums: list[Sum], outers: list[Sum]) -> set[int]:
    """Returns the sums that are the first of a stream inside of a branch.

    Their shortcut is a kernel of the outer stream.
    """
    shortcuts, first = [item for item in sums if item.kind == "projection"], set[int]()
    for outer in outers if shortcuts else ():
        between = graph.between(outer.sources, outer.branch)
        inside = [item for item in shortcuts if item.position in between]
        distance = graph.distances(outer.sources, outer.branch + 1) if inside else {}
        first |= {item.position for item in inside if not distance.get(item.source, 0)}
    return first


def stream_branches(graph: ResidualGraph, stream: list[Sum]) -> list[Branch]:
    """Returns the last parameters of the branches of a stream."""
    sums = [item for item in stream if item.kind != "merge"]
    # A constant after the last sum may be one of the classifier.
    scaled = any(_is_scaled(graph, item) for item in sums[:-1] or sums)
    ends = [(item, end) for item in sums for end in _ends(graph, item, scaled)]
    experts: dict[object, set[int]] = defaultdict(set)
    for item, end in ends:
        if end.gate:
            experts[item.sources, whole_of(graph, end.gate.node)].add(end.gate.node)

    def branch(item: Sum, end: End) -> Branch:
        node, count = graph.nodes[end.position], 1
        if end.gate:
            count = len(experts[item.sources, whole_of(graph, end.gate.node)])
        repeats = end.share * _repeats(graph, item, end.gate) / count
        return Branch(_parameter(node), node.is_product, end.is_scaled, repeats, item.position)

    return [branch(item, end) for item, end in ends]


def _repeats(graph: ResidualGraph, item: Sum, gate: Gate | None = None) -> int:
    """Returns how often a sum is added to its stream: in each turn of the scans that carry it.

    Experts that a scan adds under the entries of one gate are one branch.
    """
    nodes = graph.nodes

    def before(index: int) -> Sequence[int]:
        operands, earlier = nodes[index].operands_in_layer, graph.sum_at(index)
        is_short = earlier and earlier.kind == "projection" and index != item.position
        return (*operands, earlier.entry) if earlier and is_short else operands

    carried = {nodes[i].carries for i in graph.reached(item.entry, before=before)}
    of_experts = {*nodes[item.position].turns} - {*nodes[item.source].turns} if gate else {}
    turns = [turn for turn in nodes[item.position].turns if turn not in of_experts]
    return math.prod(length for number, length in turns if number in carried)


def _is_scaled(graph: Graph, item: Sum) -> bool:
    """Returns True if a constant below 1 follows a sum in every use, in the same scan."""
    nodes = graph.nodes
    turns = nodes[item.position].turns
    after = [node for node in nodes[item.position + 1 :] if item.position in node.operands]
    return bool(after) and all(graph.is_small(node) and node.turns == turns for node in after)


def _ends(graph: ResidualGraph, item: Sum, scaled: bool) -> Iterator[End]:
    """Yields the last parameters of the branch of a sum."""
    inside = graph.between(item.sources, item.branch)
    visited = {item.branch, *graph.other_streams(item.sources, item.branch)}
    stack = [End(item.branch, scaled)] if item.branch in inside else []
    while stack:
        end = stack.pop()
        node = graph.nodes[end.position]
        scaled = end.is_scaled or (end.is_linear and graph.is_small(node))
        linear = end.is_linear and (node.primitive in _LINEAR or is_scaling(node))
        last, before, gate = _last(graph, end.position, item.source)
        if last is not None:
            yield end._replace(position=last, is_scaled=scaled)
        adapter = graph.sum_at(end.position)
        for i in (i for i in before if i in inside and i not in visited):
            visited.add(i)
            size = graph.nodes[i].shape if node.primitive in STACKS else node.shape
            part = Fraction(math.prod(size), math.prod(node.shape))
            if adapter and adapter.kind == "adapter" and adapter.branch == i:
                part = Fraction(0)
            stack.append(End(i, scaled, linear, end.share * part, end.gate or gate))


def _last(graph: Graph, index: int, source: int) -> tuple[int | None, Sequence[int], Gate | None]:
    """Returns the node that ends a branch, or the operands among which the end is, and their gate.

    The scale of a normalization is the last node of its product. An activation such as silu is the
    product of two functions of one node, which leads to the end. In a product with a gate of fewer
    entries the gated node leads to the end, and in a matrix product with weights (those of experts)
    the weighted node.
    """
    nodes, node = graph.nodes, graph.nodes[index]
    if node.is_product or has_scale(node):
        return index, (), None
    if node.primitive not in MULTIPLICATIONS or len(node.operands) < 2:
        real = [i for i in node.operands if nodes[i].is_real]
        return None, real, _choice(graph, index)
    for i, j in (node.operands, node.operands[::-1]):
        viewed = graph.viewed(i)
        if has_scale(nodes[viewed]) and viewed not in graph.ancestors_in_layer(j):
            return viewed, (), None
    common = activated(graph, node)
    if common is not None:
        return None, (common,), None
    one, other = (_kernels(graph, i, source) for i in node.operands)
    if node.primitive == "dot_general":
        full = [i for i in node.operands if leads_linearly(graph, i)]
    else:
        size = math.prod(node.shape)
        full = [i for i in node.operands if math.prod(nodes[graph.viewed(i)].shape) == size]
    if len(full) == 1 and one.isdisjoint(other):
        (gate,) = {*node.operands} - {*full}
        return None, full, Gate(gate, index)
    raise NoUniqueEndError(
        "a branch ends in a product of two values, or is normalized after its last kernel, so "
        f"that no one factor of a kernel scales it: {listed(sorted(one | other))}. Add a scale "
        "after it, or scale its last kernel by hand."
    )


def _choice(graph: Graph, position: int) -> Gate | None:
    """Returns the gate of a value that is chosen where an index has one number, and 0 elsewhere."""
    node = graph.nodes[position]
    if node.primitive != "select_n":
        return None
    index = graph.viewed(node.operands[0])
    chosen = graph.nodes[index]
    is_index = chosen.primitive == "eq" and len(chosen.operands) == 1
    return Gate(index, position) if is_index else None


def whole_of(graph: Graph, index: int) -> int:
    """Returns the node of which a gate is an entry; 1 - g belongs to g, and i == 2 to i."""
    node = graph.nodes[index]
    while node.operands:
        (before, *others) = node.operands
        if is_entry(node, graph.nodes[before]):
            return before
        is_part = node.primitive in SLICES or (others and node.primitive != "div")
        if is_part or node.primitive not in _OF_ONE_NUMBER:
            return index
        index, node = before, graph.nodes[before]
    return index


def leads_linearly(graph: Graph, index: int) -> bool:
    """Returns True if a kernel's product leads to a node by linear operations."""

    def before(index: int) -> Sequence[int]:
        node = graph.nodes[index]
        is_linear = node.primitive in (*_LINEAR, *STACKS) or is_scaling(node)
        is_through = is_linear or node.is_product
        return node.operands_in_layer if is_through else _weighted(graph, node)

    return any(graph.nodes[i].is_product for i in graph.reached(index, before=before))


def _weighted(graph: Graph, node: Node) -> Sequence[int]:
    """Returns the one operand of a product of two nodes to which a kernel leads linearly."""
    if node.primitive not in ("mul", "dot_general") or len(node.operands) != 2:
        return ()
    linear = [i for i in node.operands if leads_linearly(graph, i)]
    return linear if len(linear) == 1 else ()


def activated(graph: Graph, node: Node) -> int | None:
    """Returns the node of which a product of two nodes is an elementwise function."""
    one, other = (graph.ancestors_in_layer(i) for i in node.operands)
    common = max(one & other, default=None)
    if common is None:
        return None
    between = {i for i in one | other if i >= common and common in graph.ancestors_in_layer(i)}
    return common if {graph.nodes[i].shape for i in between} == {node.shape} else None


def _kernels(graph: Graph, index: int, source: int) -> frozenset[Path]:
    """Returns the last kernels before a node, without those that only choose indices."""
    products = graph.last_products(index, through_masks=False)
    paths = (graph.nodes[i].constant.sources for i in products if i > source)
    return frozenset[Path]().union(*paths)


def _parameter(node: Node) -> Path:
    if len(node.constant.factors) != 1:
        raise NoUniqueEndError(
            "no one parameter is a factor of the last kernel of a branch, which is a function of "
            f"{listed(sorted(node.constant.sources))}. Add a scale after it, or scale the branch "
            "by hand."
        )
    return next(iter(node.constant.factors))
