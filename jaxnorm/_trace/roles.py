"""Roles of kernels in a program: heads, and kernels whose units read one feature."""

import math
from typing import Any

from jaxnorm._paths import Path
from jaxnorm._trace.graph import Graph
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.primitives import product_axes
from jaxnorm._trace.streams import begins_with_kernel, stream_sums


def heads(program: Program) -> set[Path]:
    """Returns the kernels after which neither a kernel nor a residual sum follows.

    A sum is residual if it is one of a stream with a shortcut without kernels: a linear model
    beside a network makes the same result. The stream has to begin with a kernel: a network that
    is added to its own inputs, x + f(x), makes their difference from the result.

    Args:
        program: a program with nodes.
    """
    graph = Graph(program.facts.nodes or [])
    live = graph.ancestors(*program.result_nodes())
    products = {i for i in live if graph.nodes[i].is_product}
    sums = [item for stream in stream_sums(graph, program) for item in stream]
    residual = [item for item in sums if item.kind != "merge" and begins_with_kernel(graph, item)]
    joins = products | {item.position for item in residual}
    before = graph.ancestors(*(j for i in joins for j in graph.nodes[i].operands))
    inner = {path for i in products & before for path in graph.nodes[i].constant.sources}
    last = {path for i in products - before for path in graph.nodes[i].constant.sources}
    return last - inner


def single_feature_kernels(program: Program) -> set[Path]:
    """Returns the kernels whose units read one feature, such as those of depthwise convolutions.

    A sum over their weights is one over positions alone: with zero sums such a unit would not see
    the mean of its feature.
    """
    return {
        layer.product.form.path
        for layer in program.layers.values()
        if not layer.product.biased and _features(layer.equation, layer.product.use.side) == 1
    }


def _features(equation: Any, side: int) -> int | None:
    """Returns the number of input features that each unit of a product reads."""
    shape = equation.invars[side].aval.shape
    if equation.primitive.name == "conv_general_dilated":
        return int(shape[equation.params["dimension_numbers"].rhs_spec[1]])
    if equation.primitive.name == "dot_general":
        return math.prod(int(shape[axis]) for axis in product_axes(equation, side)[0])
    return None
