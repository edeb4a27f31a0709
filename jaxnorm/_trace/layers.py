"""Passes over a model's layers: a function is called at each product of a kernel."""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import warn
from jaxnorm._layout import Layout, kernels_by_path
from jaxnorm._node import Axes
from jaxnorm._paths import Path, listed
from jaxnorm._trace import samples
from jaxnorm._trace.batch_statistics import warn_of_batch_normalization
from jaxnorm._trace.facts import Facts
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.mesh import MeshAxes, product_mesh_axes
from jaxnorm._trace.phases import OutputPhase, output_phases
from jaxnorm._trace.reading import Reading
from jaxnorm._trace.replay import Collected, Layer, Replace, Turns
from jaxnorm._trace.values import Product, Use


class KernelCall(NamedTuple):
    """Use of a kernel.

    Attributes:
        path: the kernel's path in the parameters.
        output: the pre-activations, without the bias unless it was asked for.
        unit_axes: the axes of ``output`` that count units.
        keeps_units: True if the units are in the kernel's order, whatever the form in which the
            model uses the kernel.
        sample_axis: the axis of ``output`` that counts the rows of the inputs; None if there is no
            such axis, or if it was not asked for.
        fan_in: the kernel's axes, negative, that the product sums over; None for parts of axes.
        turns: inside scans over stacked kernels, the index of the layer along each axis of layers.
        bias: the parameter of one value per channel that the model adds to the product directly,
            and that it reads only beside this kernel; None without one.
        added: the bias that the model adds to the output next, and that the replacement of the
            output has to include, if it is ``"separate"``.
        mesh: the mesh axes of the product inside a checked shard_map.
        phases: the axes of space of a transposed convolution with a stride.
        is_rounded: True if the model rounds the kernel to a few levels, so that a factor on the
            output is not one on the kernel.
    """

    path: Path
    output: Float[Array, "..."]
    unit_axes: tuple[int, ...]
    keeps_units: bool
    sample_axis: int | None
    fan_in: Axes | None
    turns: Turns
    bias: Path | None
    added: Float[Array, "..."] | None = None
    mesh: MeshAxes = MeshAxes()
    phases: tuple[OutputPhase, ...] = ()
    is_rounded: bool = False

    @property
    def positions(self) -> tuple[int, ...]:
        """The axes of ``output`` that count no units: rows and positions."""
        return tuple(axis for axis in range(self.output.ndim) if axis not in self.unit_axes)

    @property
    def units(self) -> tuple[int, ...]:
        """The sizes of the axes of units, in the order of the output."""
        return tuple(self.output.shape[axis] for axis in sorted(self.unit_axes))

    def of_layer(self, values: Any, kernel: Any) -> Any:
        """Returns one value per unit of a whole kernel as those of this layer, of shape `units`."""
        stack = kernel.shape[: len(self.turns)]
        return values.reshape((*stack, *self.units))[self.turns]


#: Pre-activations before their bias; after it; or before it, with the bias beside them.
Bias = Literal["excluded", "included", "separate"]

#: ``(call, values collected by the calls before it) -> (replacement of its output, its value)``, in
#: execution order. The values are arrays: in a scan they are stacked.
Visit = Callable[[KernelCall, Collected], tuple[Float[Array, "..."], Any]]


def run_layers(
    net: Reading,
    layout: Layout | None,
    visit: Visit,
    bias: Bias = "excluded",
    only_products: bool = False,
    sample_axes: bool = False,
) -> tuple[Any, dict[Path, tuple[Any, Axes]]]:
    """Runs a model with ``visit`` at each use of a kernel that the layout constrains.

    A scan over stacked kernels stays a scan: ``visit`` gets the layer of one turn.

    Args:
        net: the model, at the values with which it runs; nodes are made effective.
        layout: the layout of its kernels; None for the reading's.
        visit: ``visit(call, collected) -> (replacement of call.output, value)``.
        bias: "included" for pre-activations after the bias, if it is added to the product directly,
            with units last, as they always are if kernels have a part for each group of inputs;
            "separate" for the product and the bias, if it is added in the product's own axes:
            ``visit`` returns their sum.
        only_products: refuse kernels of which the model makes anything but products.
        sample_axes: find the axis of each output that counts rows, for which the model is traced
            again at other batch sizes.

    Returns:
        The model's output; and by path, in execution order, the value of each kernel's last use
        with the kernel's axes, negative, that scans slice: the value has them in front.

    Raises:
        ValueError: for a kernel that is not multiplied as it is, or also in another form; in a loop
            or a branch, except one layer per turn of a scan over stacked kernels; or, if
            ``only_products``, whose rows are looked up, or that meets the inputs otherwise.
    """
    kernels = _kernels(layout or net.layout, net.plain)
    program = net.running(kernels)
    scanned = _scanned_axes(program, kernels)
    if only_products:
        warn_of_batch_normalization(net)
        _check_met(program.facts.met & scanned.keys())
    else:
        _warn_of_opened(program.facts.opened & scanned.keys())
    rows = dict[int, int]()
    if sample_axes:
        rows = samples.sample_axes(program, net.again(kernels), net.inputs)
    output, collected = program.run(_replacing(program, visit, bias, rows))
    # In execution order, which a scan does not keep.
    order = dict.fromkeys(layer.product.form.path for layer in program.layers.values())
    return output, {path: (collected[path], scanned[path]) for path in order}


def _replacing(program: Program, visit: Visit, bias: Bias, rows: dict[int, int]) -> Replace:
    """Returns ``visit`` at each layer of a program; ``rows`` has the sample axes of its layers."""
    visited_at_sum = _visited_at_sum(program, bias)
    biases, mesh_axes = private_biases(program), product_mesh_axes(program)

    def replace(
        layer: Layer, operands: list[Any], result: Any, collected: Collected, turns: Turns
    ) -> tuple[Any, Collected]:
        product = layer.product
        if product.biased != (id(product.use) in visited_at_sum):
            return result, collected
        call = _call(product, result, turns, biases, rows.get(id(layer)))
        if bias == "separate" and layer.bias is not None:
            call = call._replace(output=operands[1 - layer.bias], added=operands[layer.bias])
        mesh = mesh_axes.get(id(product.use), MeshAxes())
        phases = () if product.biased else output_phases(layer.equation, product.use)
        call = call._replace(mesh=mesh, phases=phases)
        units = last = call.unit_axes
        # Channels first, `vmap` of ``w @ x``, and ensembles: rows come first, and units last.
        if bias == "included" or product.use.in_groups:
            last = tuple(range(result.ndim - len(units), result.ndim))
        result, value = visit(_with_units_at(call, last), collected)
        return jnp.moveaxis(result, last, units), collected | {call.path: value}

    return replace


def _visited_at_sum(program: Program, bias: Bias) -> set[int]:
    """Returns the uses of kernels that are visited at the sum with their bias."""
    return {
        id(layer.product.use)
        for layer in program.layers.values()
        if (bias == "included" and layer.product.biased)
        or (bias == "separate" and layer.bias is not None)
    }


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
    return KernelCall(
        use.kernel.path,
        output,
        unit_axes,
        use.keeps_units,
        sample_axis,
        use.fan_in,
        turns,
        biases.get(id(use)),
        is_rounded=use.kernel.rounded,
    )


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
        phases=tuple(phase._replace(place=moved[phase.place]) for phase in call.phases),
    )


def _scanned_axes(program: Program, kernels: set[Path]) -> dict[Path, Axes]:
    """Returns each kernel's axes of layers. Raises for uses that no pass over layers covers."""
    facts, scanned = program.facts, dict[Path, Axes]()
    for use in (use for use in facts.uses if use.kernel.path in kernels):
        path, axes = use.kernel.path, use.kernel.scanned_axes()
        in_scans = use.within == ("scan",) * len(use.kernel.scanned)
        if not in_scans or axes is None or axes != scanned.setdefault(path, axes):
            raise ValueError(
                f"the kernel {path!r} is used {_place(use)}, so it has no pre-activations of one "
                "layer; wanted a kernel that runs once, or a stack of kernels from which a scan "
                "takes one layer per turn, in order. Leave the kernel out of the layout (exclude), "
                "and initialize it by itself."
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


def _place(use: Use) -> str:
    """Returns in words why the layers of a stack do not run one after the other."""
    loops = {
        "while": "inside a while loop (fori_loop is one, too)",
        "cond": "inside a branch of a cond or switch",
        "shard_map": "inside a shard_map of the model, which belongs around this call",
    }
    for name in use.within:
        if name in loops:
            return loops[name]
    if len(use.kernel.scanned) < len(use.within):
        return "at every turn of a scan, as in a recurrent cell or by its index in a stack"
    return "by a scan that takes its layers in another order, or a part of them (a flipped stack)"


def _reasons(facts: Facts, paths: list[Path]) -> str:
    reasons = [f"{path!r} {facts.refused[path]}" for path in paths if path in facts.refused]
    return f" ({'; '.join(reasons)})" if reasons else ""


def private_biases(program: Program) -> dict[int, Path]:
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
