"""Gates at the ends of residual branches, and their values in a run.

A gate is the factor s(b) of a branch a s(b), entry by entry, that has a kernel of its own and is no
linear function of it: that of a squeeze-and-excitation or a gated linear unit. A factor is no gate
if it is a mask, a comparison such as the places of maxima in unpooling; if 1 - s(b) multiplies
something else (a highway, a recurrent cell); if it is an entry of an array (a router's); or if the
products are summed over its entries (attention).
"""

import math
from collections.abc import Callable, Collection, Iterable
from functools import cache, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._paths import Path
from jaxnorm._trace.graph import Graph, Node, is_rest
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.residual_sums import Sum, residual_graph
from jaxnorm._trace.streams import Gate, activated, leads_linearly, whole_of


class _Probe(NamedTuple):
    """Operand of an equation that is read in a run, under a name."""

    side: int
    path: Path


def gates(program: Program) -> dict[Path, tuple[Gate, ...]]:
    """Returns the gates of each kernel that ends a residual branch, without ungated ones.

    ``program`` was traced with ``nodes=True``.
    """
    graph = residual_graph(program.facts)
    rests = _rests(graph)
    found: dict[Path, dict[Gate, None]] = {}
    for index in sorted(graph.ancestors(*program.result_nodes())):
        if item := graph.residual_sum(index):
            for end, several in _gated_ends(graph, item, rests).items():
                for path in _paths(graph, end):
                    found.setdefault(path, {}).update(dict.fromkeys(several))
    return {path: tuple(several) for path, several in found.items() if several}


def kernels_of_gates(program: Program) -> set[Path]:
    """Returns the kernels that reach a result only through gates of fewer entries than the gated.

    Those of a squeeze-and-excitation, whose gates are one per sample and channel.
    """
    graph = Graph(program.facts.nodes or [])
    results, rests = program.result_nodes(), _rests(graph)
    live = graph.ancestors(*results)

    def before(index: int) -> tuple[int, ...]:
        operands, gate = _before(graph, index, rests)
        is_small = gate is not None and _is_smaller(graph, gate.node, index)
        return operands if is_small else graph.nodes[index].operands

    elsewhere = graph.reached(*results, before=before)
    inside = {p for i in live - elsewhere if graph.nodes[i].is_product for p in _paths(graph, i)}
    return inside - {p for i in elsewhere if graph.nodes[i].is_product for p in _paths(graph, i)}


def _paths(graph: Graph, index: int) -> frozenset[Path]:
    return graph.nodes[index].constant.sources


def _is_smaller(graph: Graph, gate: int, product: int) -> bool:
    shapes = (graph.nodes[i].shape for i in (graph.viewed(gate), product))
    fewer, more = map(math.prod, shapes)
    return fewer < more


def gate_values(
    program: Program,
    several: dict[Path, tuple[Gate, ...]],
    statistic: Callable[[Float[Array, "..."]], Any] = jnp.mean,
) -> dict[Gate, Any]:
    """Runs a program and returns a statistic of each gate's values, stacked over turns of scans."""
    chosen = dict.fromkeys(gate for of_kernel in several.values() for gate in of_kernel)
    nodes = program.facts.nodes or []
    products = {gate: nodes[gate.product] for gate in chosen}
    probes: Any = {
        node.place: _Probe(node.operands.index(gate.node), Path(map(str, node.place or ())))
        for gate, node in products.items()
    }
    around = {
        place: body
        for place, body in program.calls.items()
        if any((node.place or ())[: len(place)] == place for node in products.values())
    }

    def read(probe: Any, operands: list[Any], result: Any, values: Any, turns: Any) -> Any:
        return result, values | {probe.path: statistic(operands[probe.side])}

    _, values = program._replace(layers=probes, bodies=around).run(read)
    return {gate: values[probes[node.place].path] for gate, node in products.items()}


def _rests(graph: Graph) -> set[int]:
    """Returns the nodes 1 - m, and their m."""
    rests = {i for i, node in enumerate(graph.nodes) if is_rest(node)}
    return rests | {graph.viewed(graph.nodes[i].operands[0]) for i in rests}


def _gated_ends(graph: Graph, item: Sum, rests: set[int]) -> dict[int, list[Gate]]:
    """Returns the last products of a branch, each with the gates that all its paths pass.

    Behind a gate there is no sum over its entries.
    """
    nodes, inside = graph.nodes, graph.between({item.source}, item.branch)
    before = cache(partial(_before, graph, rests=rests))

    def reached(stops: Collection[int] = ()) -> set[int]:
        def operands(index: int) -> Iterable[int]:
            is_last = nodes[index].is_product or index in stops
            return () if is_last else inside.intersection(before(index)[0])

        return graph.reached(item.branch, before=operands)

    ends = [i for i in reached() if nodes[i].is_product]
    sums = {i for i in inside if nodes[i].primitive == "reduce_sum"}
    several = [gate for i in sorted(reached(sums), reverse=True) if (gate := before(i)[1])]
    others = {gate: reached({gate.product}) for gate in several}
    return {end: [gate for gate in several if end not in others[gate]] for end in ends}


def _before(graph: Graph, index: int, rests: set[int]) -> tuple[tuple[int, ...], Gate | None]:
    """Returns the operands that lead to the branch's kernels, and the gate among the others."""
    node = graph.nodes[index]
    if node.primitive != "mul" or len(set(node.operands)) < 2 or node.place is None:
        return tuple(i for i in node.operands if graph.nodes[i].is_real), None
    one, other = node.operands
    for value, gate in ((one, other), (other, one)):
        if _is_gate(graph, node, value, gate, rests):
            return (value,), Gate(gate, index)
    return node.operands, None


def _is_gate(graph: Graph, node: Node, value: int, gate: int, rests: set[int]) -> bool:
    """Returns True if a factor is a gate of the other one."""
    kernels, others = (graph.last_products(i, through_masks=False) for i in (gate, value))
    if not kernels or not others or kernels & others or activated(graph, node) is not None:
        return False
    viewed = graph.viewed(gate)
    whole, size = (math.prod(graph.nodes[i].shape) for i in (whole_of(graph, gate), viewed))
    if viewed in rests or whole > size or leads_linearly(graph, gate):  # larger: it is an entry
        return False
    return graph.nodes[viewed].shape != node.shape or leads_linearly(graph, value)
