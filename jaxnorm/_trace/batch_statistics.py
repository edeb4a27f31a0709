"""Batch normalization in a program: statistics over rows that normalize what they are taken of."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import PyTree

from jaxnorm._checks import warn
from jaxnorm._paths import Path, listed
from jaxnorm._trace.graph import Graph
from jaxnorm._trace.interpret import Apply, Program, interpreted, trace
from jaxnorm._trace.samples import count_rows, doubled_program

_SUMS = ("reduce_sum", "psum")
#: Functions by which a variance becomes a factor.
_ROOTS = ("rsqrt", "sqrt", "pow")


def warn_of_batch_normalization(
    program: Program, apply: Apply, params: PyTree, inputs: tuple[Any, ...], free: Sequence[str]
) -> None:
    """Warns, with the way out, of a model whose activations are normalized over the rows."""

    def traced(inputs: tuple[Any, ...]) -> Program:
        return trace(apply, params, inputs, free=free, nodes=True)

    with_nodes = interpreted(program, free=free, nodes=True)
    if kernels := normalized_over_samples(with_nodes, traced, inputs):
        warn(
            "the model still has batch normalization: it subtracts a mean over the rows, or "
            f"divides by their deviation, after the kernels {listed(kernels)}. Take it out first: "
            "of a Flax NNX model by jaxnorm.nnx.replace_batch_norm(model, x), of any other by "
            "building the network without it, with a bias in each layer in its place."
        )


def normalized_over_samples(
    program: Program, trace_again: Callable[[tuple[Any, ...]], Program], inputs: tuple[Any, ...]
) -> list[Path]:
    """Returns the kernels after which a mean or variance over rows normalizes activations.

    Both programs are traced with ``nodes=True``. A statistic is a sum over every axis that grows
    with the rows; it normalizes if it comes back, as a difference or by a root of it as a factor,
    to the activations that it was taken of.
    """
    if not _has_sums_over(program, inputs):
        return []
    doubled = doubled_program(trace_again, inputs)
    nodes = program.facts.nodes or []
    others = (doubled.facts.nodes or []) if doubled else []
    if [node.primitive for node in nodes] != [node.primitive for node in others]:
        return []
    pairs = zip(nodes, others, strict=True)
    grows = [node.shape != other.shape for node, other in pairs]
    graph = Graph(nodes)
    live = graph.ancestors(*program.result_nodes())
    found: dict[Path, None] = {}
    for index in sorted(live):
        node = nodes[index]
        if node.primitive in _SUMS and not grows[index] and grows[node.operands[0]]:
            found.update(dict.fromkeys(_normalized(graph, index, grows, live)))
    return list(found)


def _has_sums_over(program: Program, inputs: tuple[Any, ...]) -> bool:
    """Returns True if a sum has at least as many terms as there are rows."""
    nodes, rows = program.facts.nodes or [], count_rows(inputs)
    sums = [node for node in nodes if node.primitive in _SUMS and node.operands]
    return any(
        math.prod(nodes[node.operands[0]].shape) >= rows * math.prod(node.shape) for node in sums
    )


def _normalized(graph: Graph, statistic: int, grows: list[bool], live: set[int]) -> list[Path]:
    """Returns the kernels before a statistic, if it comes back to what it was taken of."""
    nodes = graph.nodes
    before = graph.last_products(nodes[statistic].operands[0])
    after = [i for i in live if i > statistic and len(set(nodes[i].operands)) == 2]
    returns = any(
        grows[value]
        and before & graph.last_products(value)
        and _is_normal(graph, i, statistic, other)
        for i in after
        for value, other in (nodes[i].operands, nodes[i].operands[::-1])
        if not grows[graph.viewed(other)]
    )
    paths = [path for i in sorted(before) for path in sorted(nodes[i].constant.sources)]
    return paths if returns else []


def _is_normal(graph: Graph, index: int, statistic: int, other: int) -> bool:
    """Returns True for a difference from a statistic, or a product with a root of it."""
    if statistic not in graph.ancestors_in_layer(other):
        return False
    between = graph.between({statistic}, other)
    is_root = any(graph.nodes[i].primitive in _ROOTS for i in between)
    primitive = graph.nodes[index].primitive
    return primitive == "sub" or (primitive in ("mul", "div") and is_root)
