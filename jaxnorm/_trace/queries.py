"""Queries of the abstract interpreter: layouts, first layers, and passes over layers."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import warn
from jaxnorm._layout import Layout, kernels_by_path, layout_by
from jaxnorm._node import Axes, is_node
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries
from jaxnorm._reparametrize import effective
from jaxnorm._trace import samples
from jaxnorm._trace.interpret import Collected, Layer, Program, Turns, trace
from jaxnorm._trace.mesh import MeshAxes, product_mesh_axes
from jaxnorm._trace.rules import Facts
from jaxnorm._trace.values import Product

#: ``apply(params, *inputs)``: the model as a function of its plain parameters.
Apply = Callable[..., Any]


def traced_layout(apply: Apply, params: PyTree, *inputs: Any, free: Sequence[str] = ()) -> Layout:
    """Layout of any library's model: the axes of each parameter that the model contracts.

    The model is traced, and each parameter is followed through transposes, reshapes, casts between
    floating types, slices, broadcasts, ``stop_gradient``, ``device_put``, straight-through
    estimators (``w + stop_gradient(q(w) - w)``) and constants that multiply it (one number, or one
    per unit) to the matrix product, ragged product or convolution that uses it. The axes that are
    summed over are its fan-in. So the layout is right for attention projections, grouped,
    transposed and 1-D convolutions, stacked layers (``nn.scan``, ``nnx.scan``, ``filter_vmap``) and
    recurrent cells, whatever their names. Biases, scales, and tables whose rows are looked up are
    free.

    Args:
        apply: ``apply(params, *inputs)``, the model as a function of plain parameters; for NNX
            ``lambda params, x: functional.apply(params, state, x, train=False)[0]``.
        params: the parameters, or their shapes.
        *inputs: the other arguments, arrays or their shapes. Whatever a kernel is multiplied with
            must come from them, or be a constant.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that are no
            kernels and that the model uses as if they were inputs, such as learned queries.

    Returns:
        A layout for the model's parameters in any form: plain, reparametrized, masked, updates.

    Raises:
        ValueError: with the paths of the parameters that are not understood: changed by more than
            a view before the product (by a mask, constant or one of the inputs, or by a choice of
            one of several kernels for each row), multiplied with each other, contracted along
            different axes in two places, along a part of an axis, in an einsum of more than two
            operands (their sizes decide what is contracted first), or used by a primitive without a
            transfer rule, which is named; and if no parameter is contracted.

    A parameter that is multiplied and summed by hand, without a product, counts as a scale. An
    einsum is recognized by its string of indices, so write one of several operands with a string,
    not with lists. Nothing is computed, and sharding has no influence; inside ``shard_map`` kernels
    must be whole.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"qkv": jnp.ones((8, 2, 4)), "bias": jnp.ones((2, 4))}
        >>> apply = lambda p, x: jnp.einsum("bi,ihd->bhd", x, p["qkv"]) + p["bias"][None]
        >>> traced_layout(apply, params, jnp.ones((3, 8)))(params)
        {'bias': None, 'qkv': (-3,)}
    """
    plain = plain_shapes(params)
    facts = trace(apply, plain, inputs, free=free).facts
    paths = [path for path, entry in named_entries(plain) if not is_absent(entry)]
    known = _fan_in_axes(facts, paths)
    return layout_by(lambda path, entry: known.get(path))


def plain_shapes(params: PyTree) -> PyTree:
    """Returns plain parameters as they are, and the shapes of the effective ones of others."""
    nodes = any(is_node(entry) for _, entry in named_entries(params))
    return jax.eval_shape(effective, params) if nodes else params


def _fan_in_axes(facts: Facts, paths: list[Path]) -> dict[Path, Axes]:
    """Returns the axes by path. Raises ValueError for what was not understood, or without any."""
    axes: dict[Path, set[Axes]] = {}
    for use in facts.uses:
        if use.fan_in:
            axes.setdefault(use.kernel.path, set()).add(use.fan_in)
    refused = facts.refused | {
        path: f"is contracted along {' and '.join(map(str, sorted(several)))}"
        for path, several in axes.items()
        if len(several) > 1
    }
    if refused:
        reasons = "; ".join(f"{path!r} {reason}" for path, reason in refused.items())
        raise ValueError(
            f"traced_layout does not know the fan-in axes, because {reasons}. Write a "
            "layout_from_rules([(regex, axes), ...]), or name parameters that are no kernels in "
            "free=[regex]."
        )
    if not axes:
        raise ValueError(
            "the model multiplies its inputs by none of its parameters, so it has no kernel. "
            f"The paths are: {listed(paths)}. Pass apply(params, *inputs)."
        )
    return {path: next(iter(several)) for path, several in axes.items()}


def first_layer(apply: Apply, params: PyTree, *inputs: Any) -> PyTree:
    """Mask of the kernels that are multiplied with the inputs themselves, and with nothing else.

    The inputs themselves depend on no parameter: inputs that were reshaped, normalized by
    statistics or rectified count, scaled or embedded ones do not. The units of such a kernel see
    the sum of the features, which the constraint of zero-mean weights would hide:

        later = jax.tree.map(operator.not_, first_layer(apply, params, x))
        raw, tx = constrain(params, optimizer, layout=layout, centered=later)

    Args:
        apply: ``apply(params, *inputs)``, as in `traced_layout`.
        params: the parameters, or their shapes.
        *inputs: the other arguments, arrays or their shapes.

    Returns:
        A tree of the structure of the plain parameters: True at those kernels, False elsewhere,
        also at a kernel that a loop (other than a scan), a branch or a shard_map uses.

    Nothing is computed, and sharding has no influence.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"a": jnp.ones((8, 4)), "b": jnp.ones((4, 2)), "skip": jnp.ones((8, 2))}
        >>> apply = lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"] + x @ p["skip"]
        >>> first_layer(apply, params, jnp.ones((3, 8)))
        {'a': True, 'b': False, 'skip': True}
    """
    plain = plain_shapes(params)
    program = trace(apply, plain, inputs)
    first = {layer.product.form.path for layer in program.layers.values()}
    for use in program.facts.uses:
        if not use.multiplies_inputs or {*use.within} - {"scan"}:
            first.discard(use.kernel.path)
    return map_entries(lambda path, _: path in first, plain)


class MarkedLayer(NamedTuple):
    """Layer whose output, its bias included, goes into a marked call: and its fan-in axes."""

    kernel: Path
    bias: Path
    fan_in: Axes


def marked_layers(program: Program) -> dict[str, MarkedLayer]:
    """Returns the layer that directly precedes each marked call, by the name of the mark.

    Directly: the input of the call is the output of the layer, with its last axis for the units, in
    their order, and nothing else reads that output, the kernel or the bias.
    """
    facts, read = program.facts, program.read()
    reads = Counter([*facts.biases, *(use.kernel.path for use in facts.uses)])
    calls = Counter(name for name, _ in facts.marks)
    layers: dict[str, MarkedLayer] = {}
    for name, product in facts.marks:
        if calls[name] > 1 or product is None or product.bias is None or not _is_plain(product):
            continue
        kernel, bias, fan_in = product.form.path, product.bias, product.use.fan_in
        if fan_in and reads[kernel] == reads[bias] == 1 and not read & {kernel, bias}:
            layers[name] = MarkedLayer(kernel, bias, fan_in)
    return layers


def _is_plain(product: Product) -> bool:
    """Returns True for a product outside of loops whose last axis is its units, in their order."""
    if product.use.within or product.use.kernel.scaled is not None:
        return False
    *others, last = product.unit_order()
    in_order = len(last) <= 1 and all(step == 1 for _, step in last)
    return in_order and product.unit_axes == (len(others),)


class KernelCall(NamedTuple):
    """Use of a kernel.

    Attributes:
        path: the kernel's path in the parameters.
        output: the pre-activations, without the bias unless it was asked for.
        unit_axes: the axes of ``output`` that count units.
        is_reshaped: True if the model reshaped or transposed the kernel before the product, so that
            the units may be in another order than the kernel's.
        sample_axis: the axis of ``output`` that counts the rows of the inputs; None if there is no
            such axis, or if it was not asked for.
        fan_in: the kernel's axes, negative, that the product sums over; None for parts of axes.
        turns: inside scans over stacked kernels, the index of the layer along each axis of layers.
        bias: the parameter of one value per unit that the model adds to the product directly, and
            that it reads only beside this kernel; None without one.
        added: the bias that the model adds to the output next, and that the replacement of the
            output has to include, if it is ``"separate"``.
        mesh: the mesh axes of the product inside a checked shard_map.
    """

    path: Path
    output: Float[Array, "..."]
    unit_axes: tuple[int, ...]
    is_reshaped: bool
    sample_axis: int | None
    fan_in: Axes | None
    turns: Turns
    bias: Path | None
    added: Float[Array, "..."] | None = None
    mesh: MeshAxes = MeshAxes()


#: Pre-activations before their bias; after it; or before it, with the bias beside them.
Bias = Literal["excluded", "included", "separate"]

#: ``(call, values collected by the calls before it) -> (replacement of its output, its value)``, in
#: execution order. The values are arrays: in a scan they are stacked.
Visit = Callable[[KernelCall, Collected], tuple[Float[Array, "..."], Any]]


def run_layers(
    apply: Apply,
    params: PyTree,
    inputs: tuple[Any, ...],
    layout: Layout,
    visit: Visit,
    bias: Bias = "excluded",
    only_products: bool = False,
    sample_axes: bool = False,
    free: Sequence[str] = (),
) -> tuple[Any, dict[Path, tuple[Any, Axes]]]:
    """Runs a model with ``visit`` at each use of a kernel that the layout constrains.

    A scan over stacked kernels stays a scan: ``visit`` gets the layer of one turn.

    Args:
        apply: ``apply(params, *inputs)``.
        params: its parameters; nodes are made effective.
        inputs: its other arguments.
        layout: the layout of its kernels.
        visit: ``visit(call, collected) -> (replacement of call.output, value)``.
        bias: "included" for pre-activations after the bias, if it is added to the product directly,
            with units last, as they always are if kernels have a part for each group of inputs;
            "separate" for the product and the bias, if it is added in the product's own axes:
            ``visit`` returns their sum.
        only_products: refuse kernels of which the model makes anything but products.
        sample_axes: find the axis of each output that counts rows, for which the model is traced
            again at other batch sizes.
        free: parameters that count as inputs, as in `traced_layout`.

    Returns:
        The model's output; and by path, in execution order, the value of each kernel's last use
        with the kernel's axes, negative, that scans slice: the value has them in front.

    Raises:
        ValueError: for a kernel that is not multiplied as it is, or also in another form; in a loop
            or a branch, except one layer per turn of a scan over stacked kernels; or, if
            ``only_products``, whose rows are looked up, or that meets the inputs otherwise.
    """
    plain = effective(params)
    kernels = _kernels(layout, plain)
    program = trace(apply, plain, inputs, kernels, free)
    scanned = _scanned_axes(program, kernels)
    if only_products:
        _check_met(program.facts.met & scanned.keys())
    else:
        _warn_of_opened(program.facts.opened & scanned.keys())
    # Uses of kernels that are visited at the sum with their bias, not at the product.
    visited_at_sum = {
        id(layer.product.use)
        for layer in program.layers.values()
        if (bias == "included" and layer.product.biased)
        or (bias == "separate" and layer.bias is not None)
    }
    biases, rows = _private_biases(program), dict[int, int]()
    mesh_axes = product_mesh_axes(program)
    if sample_axes:
        rows = samples.sample_axes(program, lambda x: trace(apply, plain, x, kernels, free), inputs)

    def replace(
        layer: Layer, operands: list[Any], result: Any, collected: Collected, turns: Turns
    ) -> tuple[Any, Collected]:
        product = layer.product
        if product.biased != (id(product.use) in visited_at_sum):
            return result, collected
        call = _call(product, result, turns, biases, rows.get(id(layer)))
        if bias == "separate" and layer.bias is not None:
            call = call._replace(output=operands[1 - layer.bias], added=operands[layer.bias])
        call = call._replace(mesh=mesh_axes.get(id(product.use), MeshAxes()))
        units = last = call.unit_axes
        # Channels first, `vmap` of ``w @ x``, and ensembles: rows come first, and units last.
        if bias == "included" or product.use.in_groups:
            last = tuple(range(result.ndim - len(units), result.ndim))
        result, value = visit(_with_units_at(call, last), collected)
        return jnp.moveaxis(result, last, units), collected | {call.path: value}

    output, collected = program.run(replace)
    # In execution order, which a scan does not keep.
    order = dict.fromkeys(layer.product.form.path for layer in program.layers.values())
    return output, {path: (collected[path], scanned[path]) for path in order}


def _kernels(layout: Layout, plain: PyTree) -> set[Path]:
    """Returns the kernels. Raises for equal joined paths, by which draws and results are named."""
    with warnings.catch_warnings():
        # A layout by names warns of doubtful axes, which play no part here.
        warnings.simplefilter("ignore", UserWarning)
        kernels = set(kernels_by_path(layout, plain))
    counts = Counter(map(str, kernels))
    if same := sorted(path for path, count in counts.items() if count > 1):
        raise ValueError(
            f"several kernels have the path {same[0]!r}, because one of their keys contains a '/'; "
            "wanted a different joined path for each kernel. Rename a key."
        )
    return kernels


def _call(
    product: Product, output: Any, turns: Turns, biases: dict[int, Path], sample_axis: int | None
) -> KernelCall:
    use = product.use
    unit_axes = product.unit_axes if product.biased else use.unit_axes
    path, is_reshaped, bias = use.kernel.path, not use.kernel.is_unchanged, biases.get(id(use))
    return KernelCall(path, output, unit_axes, is_reshaped, sample_axis, use.fan_in, turns, bias)


def _with_units_at(call: KernelCall, places: tuple[int, ...]) -> KernelCall:
    """Moves the axes of units; the other axes keep their order."""
    axes = range(call.output.ndim)
    before = [axis for axis in axes if axis not in call.unit_axes]
    after = [axis for axis in axes if axis not in places]
    moved = dict(zip(before, after, strict=True))
    return call._replace(
        output=jnp.moveaxis(call.output, call.unit_axes, places),
        unit_axes=places,
        sample_axis=None if call.sample_axis is None else moved.get(call.sample_axis),
    )


def _scanned_axes(program: Program, kernels: set[Path]) -> dict[Path, Axes]:
    """Returns each kernel's axes of layers. Raises for uses that no pass over layers covers."""
    facts, scanned = program.facts, dict[Path, Axes]()
    for use in (use for use in facts.uses if use.kernel.path in kernels):
        path, axes = use.kernel.path, use.kernel.scanned_axes()
        in_scans = use.within == ("scan",) * len(use.kernel.scanned)
        if not in_scans or axes is None or axes != scanned.setdefault(path, axes):
            loop = next((name for name in use.within if name != "scan"), "scan")
            raise ValueError(
                f"the kernel {path!r} is used inside a {loop}, where layers do not run one after "
                "the other; wanted one layer per turn of a scan over the stacked kernels, and a "
                "shard_map around this call, not inside the model. Or leave the kernel out of the "
                "layout, and initialize it by itself."
            )
    if changed := sorted(kernels & facts.changed & scanned.keys()):
        raise ValueError(
            f"the model multiplies its inputs by the kernels {listed(changed)} and by other "
            f"functions of them{_reasons(facts, changed)}; wanted each kernel only in products as "
            "it is. Give the other product a parameter of its own, or leave them out of the layout."
        )
    products = [layer.product for layer in program.layers.values()]
    measured = {id(product.use): product.form.path for product in products}
    in_part = {use.kernel.path for use in facts.uses if id(use) not in measured}
    if unused := sorted(kernels - ({*measured.values()} - in_part)):
        raise ValueError(
            f"the model does not multiply its input by the kernels {listed(unused)} as they are, "
            "or has rows of different units in one array (a ragged product), so their "
            f"pre-activations cannot be measured{_reasons(facts, unused)}. Leave them out of the "
            "layout."
        )
    return scanned


def _reasons(facts: Facts, paths: list[Path]) -> str:
    reasons = [f"{path!r} {facts.refused[path]}" for path in paths if path in facts.refused]
    return f" ({'; '.join(reasons)})" if reasons else ""


def _private_biases(program: Program) -> dict[int, Path]:
    """Returns the bias of each product, by the use, if nothing else is made of it."""
    products = [layer.product for layer in program.layers.values()]
    added = {id(p.use): (p.form.path, p.bias) for p in products if p.bias}
    kernels, read = Counter(bias for _, bias in set(added.values())), program.read()
    return {use: b for use, (_, b) in added.items() if kernels[b] == 1 and b not in read}


def _check_met(met: set[Path]) -> None:
    """Raises for kernels that a factor on their products alone would not rescale."""
    if met:
        raise ValueError(
            f"the model looks up rows of the kernels {listed(sorted(met))}, or combines them with "
            "its inputs in something else than a product, which a factor on the product would not "
            "reach; wanted each kernel only in products. Leave them out of the layout (a tied "
            "embedding, say), and initialize them by themselves."
        )


def _warn_of_opened(opened: set[Path]) -> None:
    """Warns that the gradient may not be the model's: initializers take none."""
    if opened:
        warn(
            f"the kernels {listed(sorted(opened))} are multiplied inside a function with a "
            "derivative of its own (jax.custom_vjp or jax.custom_jvp) that goes on after the "
            "product; it is run equation by equation here, and differentiated so. If its "
            "derivative is another, let it end with the product, and add the bias and what follows "
            "outside."
        )
