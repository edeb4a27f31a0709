"""One pass over a model's layers in execution order, whatever library it is written in."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._reparametrize import effective
from jaxnorm._tracing._program import Found, Program, Turns, trace
from jaxnorm._tracing._values import Product, Step
from jaxnorm._tracing._views import whole
from jaxnorm._trees._constrained import kernel_axes
from jaxnorm._trees._layout import Layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path, listed

#: ``apply(params, *inputs)``: the model as a function of its plain parameters.
Apply = Callable[..., Any]

#: What a kernel's last use found, with the axes of layers in front; and which of the kernel's axes,
#: negative, they are: none outside of scans.
Seen = tuple[Any, Axes]


class KernelCall(NamedTuple):
    """One use of a kernel.

    Attributes:
        path: the kernel's path in the parameters.
        output: the pre-activations, without the bias unless it was asked for.
        unit_axes: the axes of ``output`` that count units, in the kernel's order; None if the model
            reshaped or transposed the kernel before using it.
        units: the axes of ``output`` that count units, in whatever order.
        fan_in: the kernel's axes, negative, that the product sums over; None for parts of axes.
        turns: inside scans over stacked kernels, which layer it is along each axis of layers.
        bias: the parameter of one value a unit that the model adds to the product directly, and
            that it reads nowhere but beside this kernel; None without one.
        added: what the model adds to the output next, and what replaces the output is to have, if
            it is seen ``apart``.
    """

    path: Path
    output: Float[Array, "..."]
    unit_axes: tuple[int, ...] | None
    units: tuple[int, ...]
    fan_in: Axes | None
    turns: Turns
    bias: Path | None
    added: Float[Array, "..."] | None = None


#: What is called with each use, in execution order, and with what the uses before it have found, by
#: path: what replaces the output, and what this one finds. Arrays: in a scan they are stacked.
Visit = Callable[[KernelCall, Found], tuple[Float[Array, "..."], Any]]


def run_layers(
    apply: Apply,
    params: PyTree,
    inputs: tuple[Any, ...],
    layout: Layout,
    visit: Visit,
    with_bias: bool = False,
    apart: bool = False,
    alone: bool = False,
    free: Sequence[str] = (),
) -> tuple[Any, dict[Path, Seen]]:
    """The model's output, with ``visit`` at each kernel that the layout knows, and what it found.

    A scan over stacked kernels stays one: ``visit`` sees the layer of one turn.

    ``with_bias``: the pre-activations are seen after the bias, where it is added to the product
    directly, and with units last. They always are where the kernel has a part for each group of
    inputs.

    ``apart``: where the model adds something to the product as it is, ``visit`` sees both, and
    makes the sum.

    ``free``: the parameters that count as inputs, as `traced_layout` has them.

    ``alone``: what ``visit`` makes of the products is all that the model is to make of a kernel.

    Raises:
        ValueError: for a kernel that is not multiplied as it is, or also in another form; or is so
            inside a loop or a branch, but for one layer a turn of a scan over stacked kernels; for
            one whose rows are looked up, or that meets the inputs otherwise, if it is to be
            ``alone``.
    """
    plain = effective(params)
    with warnings.catch_warnings():
        # A layout by names doubts its axes, which are not asked for here.
        warnings.simplefilter("ignore", UserWarning)
        kernels = set(kernel_axes(plain, layout))
    program = trace(apply, plain, inputs, kernels, free)
    layers = _layers(program, kernels)
    if alone:
        _check_met(program.walk.met & layers.keys())
    elif opened := sorted(program.walk.opened & layers.keys()):
        _warn_of_opened(opened)
    steps = [(step, step.makes) for step in program.body.layers() if step.makes]
    late = {
        id(product.use)
        for step, product in steps
        if (product.biased if with_bias else apart and step.added is not None)
    }
    biases = _own_biases(program)

    def replace(
        step: Step, operands: list[Any], output: Any, found: Found, turns: Turns
    ) -> tuple[Any, Found]:
        product = step.makes
        if product is None or product.biased != (id(product.use) in late):
            return output, found
        call = _call(product, output, turns, biases.get(id(product.use)))
        if apart and step.added is not None:
            call = call._replace(output=operands[1 - step.added], added=operands[step.added])
        units = last = call.units
        # Channels first, `vmap` of ``w @ x``, and ensembles: rows are to be first, and units last.
        if with_bias or product.use.in_groups:
            last = tuple(range(output.ndim - len(units), output.ndim))
        moved = call._replace(output=jnp.moveaxis(call.output, units, last), units=last)
        result, own = visit(moved._replace(unit_axes=call.unit_axes and last), found)
        return jnp.moveaxis(result, last, units), found | {call.path: own}

    output, found = program.run(replace)
    # In execution order, which a scan does not keep.
    order = dict.fromkeys(product.form.path for _, product in steps)
    return output, {path: (found[path], layers[path]) for path in order}


def _layers(program: Program, kernels: set[Path]) -> dict[Path, Axes]:
    """The axes of each kernel that count layers. Raises for uses that no pass over layers sees."""
    layers: dict[Path, Axes] = {}
    for use in (use for use in program.walk.uses if use.kernel.path in kernels):
        path, axes, turns = use.kernel.path, use.kernel.layer_axes(), len(use.kernel.layers)
        if use.within != ("scan",) * turns or axes is None or axes != layers.setdefault(path, axes):
            loop = next((name for name in use.within if name != "scan"), "scan")
            raise ValueError(
                f"the kernel {path!r} is used inside a {loop}, where layers do not run one after "
                "the other; wanted one layer a turn of a scan over the stacked kernels, and a "
                "shard_map around this call, not inside the model. Or leave the kernel out of the "
                "layout, and initialize it by itself."
            )
    if changed := sorted(kernels & program.walk.changed & layers.keys()):
        raise ValueError(
            f"the model multiplies its inputs by the kernels {listed(changed)} and by something "
            "else that is made of them; wanted each kernel in products as it is, which alone are "
            f"seen{_reasons(program, changed)}. Give the other product a parameter of its own, or "
            "leave them out of the layout."
        )
    seen = {id(product.use): product.form.path for product in program.body.products()}
    in_part = {use.kernel.path for use in program.walk.uses if id(use) not in seen}
    if unused := sorted(kernels - (set(seen.values()) - in_part)):
        raise ValueError(
            f"the model does not multiply its input by the kernels {listed(unused)} as they are, "
            "or has rows of different units in one array (a ragged product), so their "
            f"pre-activations cannot be measured{_reasons(program, unused)}. Leave them out of the "
            "layout."
        )
    return layers


def _reasons(program: Program, paths: list[Path]) -> str:
    """What the walk has noted of parameters."""
    said = [f"{p!r} {program.walk.refused[p]}" for p in paths if p in program.walk.refused]
    return f" ({'; '.join(said)})" if said else ""


def _own_biases(program: Program) -> dict[int, Path]:
    """The bias that is added to each product, by the use, if nothing else is made of it."""
    added = {id(p.use): (p.form.path, p.bias) for p in program.body.products() if p.bias}
    kernels = Counter(bias for _, bias in set(added.values()))
    read = program.read()
    return {use: b for use, (_, b) in added.items() if kernels[b] == 1 and b not in read}


def _check_met(met: set[Path]) -> None:
    """Raises for kernels of which a factor would be seen in their products alone."""
    if met:
        raise ValueError(
            f"the model looks up rows of the kernels {listed(sorted(met))}, or puts them together "
            "with its inputs in something else than a product, where a factor found at the "
            "product would not be seen; wanted each kernel in products alone. Leave them out of "
            "the layout (a tied embedding, say), and initialize them by themselves."
        )


def _warn_of_opened(opened: list[Path]) -> None:
    """Says where the gradient may not be the model's: an initializer takes none."""
    warnings.warn(
        f"the kernels {listed(opened)} are multiplied inside a function with a derivative of its "
        "own (jax.custom_vjp or jax.custom_jvp) that goes on after the product; it is run equation "
        "by equation here, and differentiated so. If its derivative is another, let it end with "
        "the product, and add the bias and what follows outside.",
        UserWarning,
        stacklevel=1,
    )


def _call(product: Product, output: Any, turns: Turns, bias: Path | None) -> KernelCall:
    kernel, units = product.use.kernel, product.use.units
    if product.biased:
        units = product.unit_axes()
    stacked = kernel._replace(dims=(*kernel.layers, *kernel.dims), layers=(), scaled=None)
    as_it_is = stacked == whole(kernel.path, kernel.shape)
    unit_axes, fan_in = units if as_it_is else None, product.use.fan_in
    return KernelCall(kernel.path, output, unit_axes, units, fan_in, turns, bias)
