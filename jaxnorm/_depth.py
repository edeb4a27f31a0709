"""Depth of a program: activations on its paths, and the sums of its residual branches."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import PyTree

from jaxnorm._paths import Path, named_entries
from jaxnorm._trace.graph import Node
from jaxnorm._trace.primitives import LINEAR, PARTS, PRODUCTS, STACKS, SUMS
from jaxnorm._trace.reading import Reading, of_reading
from jaxnorm._trace.residual_sums import ResidualGraph, Sum, residual_graph
from jaxnorm._trace.streams import stream_branches

Layer = Callable[[float], float]

#: ``(value, layer) -> value``: the largest value in a network whose inputs have the first one, if
#: ``layer`` is what an activation does to a value and kernels do nothing.
Network = Callable[[float, Layer], float]

#: Operations that are linear in the nodes before, and those that are in one node. A choice is, too,
#: if no node decides it.
MIXTURES = (*LINEAR, *SUMS, *STACKS, "sub", "dynamic_update_slice", "scatter")
SCALINGS = ("mul", "div", "dot_general", "conv_general_dilated")


@of_reading
def traced_depth(net: Reading, *, factors: PyTree | None = None) -> Network:
    """Depth of a model's program, for `shaped`: activations on its paths, and sums of branches.

    Args:
        net: the model, as `read` returns it.
        factors: the result of `residual_factors`, if the branches start with it; None for branches
            as large as the stream.

    Returns:
        A function ``network(value, layer)``, as `shaped` takes it. Whatever is not linear between
        two kernels counts as one activation, so the model should return logits.

    Raises:
        ValueError: for a product of two values that depend on the inputs, as in attention and in
            gates (swiglu, squeeze-and-excitation, highway networks), a power of one by the other or
            a choice by the other's sign, for kernels in a scan, and as `residual_factors`: pass the
            depth as a number or a function.

    Nothing is computed, and sharding plays no part.

    Example:
        >>> from jaxnorm import read
        >>> import jax, jax.numpy as jnp
        >>> def apply(params, x):
        ...     for kernel in params[:-1]:
        ...         x = jax.nn.gelu(x @ kernel)
        ...     return x @ params[-1]
        >>> network = traced_depth(read(apply, 8 * [jnp.ones((4, 4))], jnp.ones((2, 4))))
        >>> network(0.0, lambda value: value + 1)
        7.0

    Source: Martens et al. 2021 (arXiv 2110.01765), section 8, and Zhang et al. 2022, appendix B.
    """
    program = net.program(nodes=True)
    graph = residual_graph(program.facts)
    _check_products(graph.nodes)
    depth = _Depth(graph.nodes, _squared_factors(graph, factors), program.result_nodes())
    return depth.largest


class _Depth(NamedTuple):
    """Values that activations and sums make along a program.

    Attributes:
        nodes: the program's nodes.
        sums: the sums of residual streams, each with the squared factor of its branch.
        results: the nodes of the results.
    """

    nodes: list[Node]
    sums: dict[int, tuple[Sum, float]]
    results: list[int]

    def largest(self, value: float, layer: Layer) -> float:
        """Returns the largest value of the results and of the branches."""
        items = [item for item, _ in self.sums.values()]
        branches = [self.values_from(x.source, value, layer)[x.branch] for x in items]
        whole = self.values_from(None, value, layer)
        return max([*branches, *(whole[index] for index in self.results)])

    def values_from(self, start: int | None, value: float, layer: Layer) -> dict[int, float]:
        """Returns the values of the nodes after one, or after the inputs."""
        values, activated = dict[int, float](), set[int]()
        for index, node in enumerate(self.nodes):
            before = [i for i in node.operands if i in values]
            if index == start or (start is None and not node.operands):
                values[index] = value
            elif index in self.sums and len(before) == 2:
                item, square = self.sums[index]
                (stream,) = {*before} - {item.branch}
                values[index] = (values[stream] + square * values[item.branch]) / (1 + square)
            elif node.is_product or (self._is_linear(node) and activated.isdisjoint(before)):
                values |= {index: max(values[i] for i in before)} if before else {}
            elif before:
                made = (values[i] if i in activated else layer(values[i]) for i in before)
                values[index] = max(made)
                activated.add(index)
        return values

    def _is_linear(self, node: Node) -> bool:
        chooses = node.primitive == "select_n" and all(self.nodes[i].is_real for i in node.operands)
        scales = node.primitive in SCALINGS and len(node.operands) == 1
        return node.primitive in MIXTURES or chooses or scales


def _squared_factors(graph: ResidualGraph, factors: PyTree | None) -> dict[int, tuple[Sum, float]]:
    """Returns the sums of residual streams, each with the squared factor of its branch."""
    known: dict[Path, float] = {} if factors is None else dict(named_entries(factors))
    sums: dict[int, tuple[Sum, float]] = {}
    for index in range(len(graph.nodes)):
        if item := graph.residual_sum(index):
            factor = max(known.get(end.path, 1.0) for end in stream_branches(graph, [item]))
            sums[index] = item, factor**2
    return sums


def _check_products(nodes: list[Node]) -> None:
    """Raises ValueError for gates, attention, and kernels in a scan."""
    variables = _variables(nodes)
    if any(
        _is_gate(node, variables, nodes) or (node.is_product and node.repeats > 1) for node in nodes
    ):
        raise ValueError(
            "the model multiplies two values that depend on its inputs, as attention and gates "
            "do, or has kernels inside a scan, which traced_depth does not follow; pass depth "
            "as a number of activations or as a function network(value, layer)."
        )


def _variables(nodes: list[Node]) -> list[frozenset[int]]:
    """Returns the variables of which each node is a function: inputs, layers' outputs and parts.

    A number that is no real one, such as a mask, counts as a function of layers' outputs alone: the
    mask of a rectifier is one of its layer, and a dropout's or an input's is none.
    """
    variables, of_layers = list[frozenset[int]](), set[int]()
    for index, node in enumerate(nodes):
        before = frozenset[int]().union(*(variables[i] for i in node.operands))
        if node.is_product or before & of_layers:
            of_layers.add(index)
        starts = node.is_product or node.primitive in PARTS or not node.operands
        variable = frozenset([index]) if starts else before
        variables.append(variable if node.is_real else variable & of_layers)
    return variables


def _is_gate(node: Node, variables: list[frozenset[int]], nodes: list[Node]) -> bool:
    """Returns True for a product of functions of different variables; gelu has one variable.

    A power is one, and so is a choice between values by the sign of another one.
    """
    if node.primitive in PRODUCTS:
        return len(node.operands) > 1
    several = [variables[i] for i in node.operands if variables[i]]
    chooses = node.primitive == "select_n" and not nodes[node.operands[0]].is_real
    is_product = node.primitive in ("mul", "div", "pow") or (
        chooses and variables[node.operands[0]]
    )
    return bool(is_product) and len({*several}) > 1
