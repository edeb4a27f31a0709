"""Queries of the abstract interpreter: layouts, first layers, layers and inputs before a mark."""

from collections import Counter
from typing import NamedTuple

from jaxtyping import PyTree

from jaxnorm._layout import Layout
from jaxnorm._node import Axes
from jaxnorm._paths import Path, map_entries
from jaxnorm._trace.batch_statistics import warn_of_batch_normalization
from jaxnorm._trace.interpret import Program, interpreted
from jaxnorm._trace.primitives import AFFINE, STACKS
from jaxnorm._trace.reading import Reading, of_reading
from jaxnorm._trace.values import Product


@of_reading
def traced_layout(net: Reading) -> Layout:
    """Layout of any library's model: the axes of each parameter that the model contracts.

    The model is traced, and each parameter is followed through transposes, reshapes, casts between
    floating types, slices, broadcasts, ``stop_gradient``, ``device_put``, straight-through
    estimators (``w + stop_gradient(q(w) - w)``) and constants that multiply it (one number, or one
    per channel) to the matrix product, ragged product or convolution that uses it. The axes that
    are summed over are its fan-in. So the layout is right for attention projections, grouped,
    transposed and 1-D convolutions, stacked layers (``nn.scan``, ``nnx.scan``, ``filter_vmap``) and
    recurrent cells, whatever their names. Biases, scales, and tables whose rows are looked up are
    free.

    A unit of a transposed convolution with a stride is a phase and a channel: each output position
    meets every stride-th tap. Its axes are those of any convolution with the strides beside them;
    zero sums and spheres hold for each phase, and a scale stays one number per channel.

    Args:
        net: the model, as `read` returns it.

    Returns:
        A layout for the model's parameters in any form: plain, reparametrized, masked, updates.

    Raises:
        ValueError: with the paths of the parameters that are not understood: changed by more than
            a view before the product (by a mask, constant or one of the inputs, or by a choice of
            one of several kernels for each row), mixed by values that depend on the inputs before
            inputs are multiplied along another axis (an einsum of routing weights and experts, a
            bilinear layer in two steps), multiplied with each other, contracted along
            different axes in two places, along a part of an axis, in an einsum of more than two
            operands (their sizes decide what is contracted first), or used by a primitive without a
            transfer rule, which is named; and if no parameter is contracted.

    Warns:
        UserWarning: naming the kernels, if the model still has batch normalization: it subtracts a
            mean over the rows, or divides by their deviation.

    A parameter that is multiplied and summed by hand, without a product, counts as a scale. An
    einsum is recognized by its string of indices, so write one of several operands with a string,
    not with lists. Nothing is computed, and sharding has no influence; inside ``shard_map`` kernels
    must be whole.

    Example:
        >>> from jaxnorm import read
        >>> import jax.numpy as jnp
        >>> params = {"qkv": jnp.ones((8, 2, 4)), "bias": jnp.ones((2, 4))}
        >>> apply = lambda p, x: jnp.einsum("bi,ihd->bhd", x, p["qkv"]) + p["bias"][None]
        >>> traced_layout(read(apply, params, jnp.ones((3, 8))))(params)
        {'bias': None, 'qkv': (-3,)}
    """
    layout = net.layout
    warn_of_batch_normalization(net)
    return layout


@of_reading
def first_layer(net: Reading) -> PyTree:
    """Mask of the kernels that are multiplied with the inputs themselves, and with nothing else.

    The inputs themselves depend on no parameter: inputs that were reshaped, normalized by
    statistics or rectified count, scaled or embedded ones do not. The units of such a kernel see
    the sum of the features, which the constraint of zero-sum weights would hide:

        later = jax.tree.map(operator.not_, first_layer(net))
        raw, tx = constrain(params, optimizer, layout=layout, centered=later)

    Args:
        net: the model, as `read` returns it.

    Returns:
        A tree of the structure of the plain parameters: True at those kernels, False elsewhere,
        also at a kernel that a loop (other than a scan), a branch or a shard_map uses.

    Nothing is computed, and sharding has no influence.

    Example:
        >>> from jaxnorm import read
        >>> import jax.numpy as jnp
        >>> params = {"a": jnp.ones((8, 4)), "b": jnp.ones((4, 2)), "skip": jnp.ones((8, 2))}
        >>> apply = lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"] + x @ p["skip"]
        >>> first_layer(read(apply, params, jnp.ones((3, 8))))
        {'a': True, 'b': False, 'skip': True}
    """
    first = first_kernels(net.program())
    return map_entries(lambda path, _: path in first, net.plain)


def first_kernels(program: Program) -> set[Path]:
    """Returns the kernels that are multiplied with the inputs themselves, and with nothing else."""
    first = {layer.path for layer in program.layers.values()}
    return first - {
        use.kernel.path
        for use in program.facts.uses
        if not use.multiplies_inputs or {*use.within} - {"scan"}
    }


class MarkedLayer(NamedTuple):
    """Layer whose output, its bias included, is marked; and its fan-in axes."""

    kernel: Path
    bias: Path
    fan_in: Axes


def marked_layers(program: Program) -> dict[str, MarkedLayer]:
    """Returns the layer whose output is marked, by the name of the mark.

    The marked value is the output of the layer, with its last axis for the units, in
    their order, and nothing else reads that output, the kernel or the bias.
    """
    facts, read = program.facts, program.read()
    reads = Counter([*facts.biases, *(use.kernel.path for use in facts.uses)])
    calls = Counter(mark.name for mark in facts.marks)
    layers: dict[str, MarkedLayer] = {}
    for name, product, _ in facts.marks:
        if calls[name] > 1 or product is None or product.bias is None or not _is_plain(product):
            continue
        kernel, bias, fan_in = product.form.path, product.bias, product.use.fan_in
        if fan_in and reads[kernel] == reads[bias] == 1 and not read & {kernel, bias}:
            layers[name] = MarkedLayer(kernel, bias, fan_in)
    return layers


def marked_inputs(program: Program) -> set[str]:
    """Returns the names of the marks of a program's inputs, in any form that no kernel makes.

    Functions of inputs count, parameters that scale or shift them included, and inputs beside
    something else in one array; a product with a parameter, its sums and gated inputs, and a row of
    a table that is looked up, do not.
    """
    facts = interpreted(program, nodes=True).facts
    is_input: list[bool] = []
    for node in facts.nodes or []:
        is_made = node.is_product or bool(node.constant.sources and node.primitive not in AFFINE)
        join = any if node.primitive in STACKS else all
        is_input.append(not is_made and join(is_input[i] for i in node.operands))
    return {mark.name for mark in facts.marks if mark.node is not None and is_input[mark.node]}


def _is_plain(product: Product) -> bool:
    """Returns True for a product whose last axis is its units, in their order.

    It is outside of loops, or of one layer per turn of a scan over kernels stacked along their
    first axes.
    """
    kernel, within = product.use.kernel, product.use.within
    in_scans = within == ("scan",) * len(kernel.scanned) and kernel.stacks_first
    if not in_scans or kernel.scaled is not None:
        return False
    *others, last = product.unit_order()
    in_order = len(last) <= 1 and all(step == 1 for _, step in last)
    return in_order and product.unit_axes == (len(others),)
