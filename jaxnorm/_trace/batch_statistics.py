"""Batch normalization in a program, by statistics over the rows or by stored ones."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from jaxnorm._checks import warn
from jaxnorm._paths import Path, listed
from jaxnorm._trace.graph import Graph
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.primitives import ROOTS
from jaxnorm._trace.reading import Reading
from jaxnorm._trace.samples import count_rows, doubled_program

#: The way out of batch normalization, after what it does to some kernels.
_ADVICE = (
    "Take it out first: of a Flax NNX model by jaxnorm.nnx.replace_batch_norm(model, x), of any "
    "other by building the network without it, with a bias in each layer in its place."
)
_SUMS = ("reduce_sum", "psum")


def warn_of_batch_normalization(net: Reading) -> None:
    """Warns, with the way out, of a model whose activations are normalized over the rows."""
    traced = net.again(nodes=True)
    if kernels := normalized_over_samples(traced(net.inputs), traced, net.inputs):
        warn(
            "the model still has batch normalization: it subtracts a mean over the rows, or "
            f"divides by their deviation, after the kernels {listed(kernels)}. {_ADVICE}"
        )


def warn_of_stored_statistics(kernels: Iterable[Path]) -> None:
    """Warns, with the ways out, of kernels whose units stored statistics normalize."""
    if paths := sorted(kernels):
        warn(
            "the model still has batch normalization, in evaluation: the roots of stored variances "
            f"divide what the kernels {listed(paths)} make. The start that these kernels get here "
            f"has other means and variances, and a training does not change the stored. {_ADVICE} "
            "(A trained network keeps its statistics by jaxnorm.nnx.fold_batch_norm.) To keep such "
            "layers as they are, keep the weights too: fitted=False."
        )


def kernels_before_stored_statistics(program: Program) -> set[Path]:
    """Returns the kernels whose units are divided by roots of an array that the program has stored.

    ``program`` was traced with ``nodes=True``.
    """
    graph = Graph(program.facts.nodes or [])
    factors = [
        i
        for i in graph.ancestors(*program.result_nodes())
        if graph.nodes[i].primitive in ("mul", "div") and graph.nodes[i].constant.stored == 2
    ]
    products = {i for factor in factors for i in graph.last_products(factor)}
    return {path for i in products for path in graph.nodes[i].constant.sources}


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
    is_root = any(graph.nodes[i].primitive in ROOTS for i in between)
    primitive = graph.nodes[index].primitive
    return primitive == "sub" or (primitive in ("mul", "div") and is_root)
