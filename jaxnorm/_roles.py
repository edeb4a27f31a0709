"""Roles of the kernels of a network: what `normalizer_free` does with each of them."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtyping import PyTree

from jaxnorm._branches import residual_factors
from jaxnorm._describe import aligned
from jaxnorm._layout import kernels_by_path
from jaxnorm._node import Axes
from jaxnorm._paths import Path, matching, named_entries
from jaxnorm._trace.batch_statistics import kernels_before_stored_statistics
from jaxnorm._trace.gates import gates, kernels_of_gates
from jaxnorm._trace.interpret import Apply, Program
from jaxnorm._trace.kernels import biased_kernels, measurable_kernels
from jaxnorm._trace.primitives import product_axes
from jaxnorm._trace.queries import first_kernels, traced_layout
from jaxnorm._trace.reading import Reading
from jaxnorm._trace.residual_sums import residual_graph
from jaxnorm._trace.streams import begins_with_kernel, stream_sums


class Roles(NamedTuple):
    """Roles of the kernels of a network, by path.

    Attributes:
        fan_in: the fan-in axes of every kernel.
        heads: the kernels that make results: neither constrained nor fitted.
        zero_sums: the kernels whose units keep zero sum.
        fitted: the kernels whose units start with pre-activations of mean 0 and unit variance.
        inside_gates: the kernels of gates with fewer entries than what they multiply: neither
            constrained nor fitted.
        gated: the kernels at the ends of residual branches that a gate multiplies.
        normalized: the fitted kernels whose units stored statistics normalize.
        biases: the bias of its own of each kernel that has one: its inputs are centered in the
            gradient.
    """

    fan_in: dict[Path, Axes]
    heads: set[Path]
    zero_sums: set[Path]
    fitted: set[Path]
    inside_gates: set[Path]
    gated: set[Path]
    normalized: set[Path]
    biases: dict[Path, Path]


def describe_roles(
    apply: Apply | Reading,
    params: PyTree = None,
    *inputs: Any,
    heads: Sequence[str] | None = None,
) -> str:
    """Table of what `normalizer_free` does with each kernel of a network.

    `moving_average_normalization` takes the same heads, gates, zero sums and branches, and centers
    no inputs.

    Args:
        apply: a `Reading`, or ``apply(params, *inputs)``, as in `normalizer_free`.
        params: its parameters, or their shapes.
        *inputs: the other arguments, arrays or their shapes.
        heads: as in `normalizer_free`.

    Returns:
        Lines of text, one per kernel in the order of execution: whether it makes a result
        (``head``) or a gate, whether its units keep zero sum, the standard deviation at which its
        units start (``random`` for those that are not fitted), and whether its inputs are centered
        and its units start with mean 0: a kernel without a bias of its own, as in front of a
        concatenation that batch normalization followed, has neither.
        Skips that are concatenated need nothing: the kernel that reads them is fitted to what it
        reads.

    Raises:
        ValueError: as `normalizer_free`.

    Nothing is computed, and sharding has no influence; call it outside of jit, pmap and shard_map.

    Example:
        >>> import jax.numpy as jnp
        >>> layer = {"kernel": jnp.ones((4, 4)), "bias": jnp.ones(4)}
        >>> params = {"stem": layer, "block": layer, "head": layer}
        >>> def apply(params, x):
        ...     dense = lambda name, x: x @ params[name]["kernel"] + params[name]["bias"][None]
        ...     x = dense("stem", x)
        ...     return dense("head", x + dense("block", jnp.tanh(x)))
        >>> print(describe_roles(apply, params, jnp.ones((2, 4))))
        kernel        role    zero sums  start   centered inputs
        stem/kernel   hidden  no         1       yes
        block/kernel  hidden  yes        1       yes
        head/kernel   head    no         random  yes
    """
    net = Reading.of(apply, params, inputs)
    roles = roles_of(net, heads)
    factors = dict(named_entries(residual_factors(net)))
    yes = {True: "yes", False: "no"}
    rows = [
        (
            str(path),
            "head" if path in roles.heads else "gate" if path in roles.inside_gates else "hidden",
            yes[path in roles.zero_sums],
            f"{factors[path]:.3g}" if path in roles.fitted else "random",
            yes[path in roles.biases],
        )
        for path in roles.fan_in
    ]
    return "\n".join(aligned([("kernel", "role", "zero sums", "start", "centered inputs"), *rows]))


def roles_of(net: Reading, heads: Sequence[str] | None = None) -> Roles:
    """Returns the roles of the kernels of a model, read off its program."""
    axes = kernels_by_path(traced_layout(net), net.plain)
    program = net.program(axes, nodes=True)
    executed = (layer.product.form.path for layer in program.layers.values())
    fan_in = {path: axes[path] for path in dict.fromkeys([*executed, *axes]) if path in axes}
    named = None if heads is None else matching(heads, "heads", "kernel", fan_in)
    last = kernels_of_heads(program) if named is None else named
    hidden, inside = fan_in.keys() - last, kernels_of_gates(program)
    fitted = {path for path in measurable_kernels(program) if path in hidden - inside}
    pairs = {path: pair.bias for path, pair in biased_kernels(program).items() if path in fan_in}
    return Roles(
        fan_in,
        last,
        zero_sums=hidden - single_feature_kernels(program) - window_kernels(program) - inside,
        fitted=fitted,
        inside_gates=inside & hidden,
        gated=gates(program).keys() & fitted,
        normalized=kernels_before_stored_statistics(program) & fitted,
        biases=pairs,
    )


def kernels_of_heads(program: Program) -> set[Path]:
    """Returns the kernels after which neither a kernel nor a residual sum follows.

    A sum is residual if it is one of a stream with a shortcut without kernels: a linear model
    beside a network makes the same result. The stream has to begin with a kernel: a network that
    is added to its own inputs, x + f(x), makes their difference from the result.

    Args:
        program: a program with nodes.
    """
    graph = residual_graph(program.facts)
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


def window_kernels(program: Program) -> set[Path]:
    """Returns the kernels of a `first_layer` whose windows do not overlap.

    They read a row's features, a pixel or a patch. With zero sums no unit would see the mean of
    such a window, and no layer before could move it elsewhere; of windows that overlap one shows
    what another hides, except for the mean of an image.
    """
    return first_kernels(program) & {
        layer.path
        for layer in program.layers.values()
        if not layer.product.biased and not _overlaps(layer.equation)
    }


def _overlaps(equation: Any) -> bool:
    """Returns True for a convolution of which several windows read one position."""
    if equation.primitive.name != "conv_general_dilated":
        return False
    params, shape = equation.params, equation.invars[1].aval.shape
    sizes = [shape[axis] for axis in params["dimension_numbers"].rhs_spec[2:]]
    steps = zip(params["window_strides"], params["lhs_dilation"], strict=True)
    return any(size > math.prod(step) for size, step in zip(sizes, steps, strict=True))


def _features(equation: Any, side: int) -> int | None:
    """Returns the number of input features that each unit of a product reads."""
    shape = equation.invars[side].aval.shape
    if equation.primitive.name == "conv_general_dilated":
        return int(shape[equation.params["dimension_numbers"].rhs_spec[1]])
    if equation.primitive.name == "dot_general":
        return math.prod(int(shape[axis]) for axis in product_axes(equation, side)[0])
    return None
