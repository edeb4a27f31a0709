"""One pass over a model's layers in execution order, whatever library it is written in."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._tracing._program import Program, trace
from jaxnorm._tracing._values import Product
from jaxnorm._tracing._views import whole
from jaxnorm._trees._constrained import constrained_leaves
from jaxnorm._trees._doubts import undoubted
from jaxnorm._trees._layout import Layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path, entries, is_node, listed, rebuild_entries
from jaxnorm.reparam._effective import effective

#: ``apply(params, *inputs)``: the model as a function of its plain parameters.
Apply = Callable[..., Any]

#: What each kernel is multiplied by: a scalar, or one value per unit in the kernel's rank.
Factors = dict[Path, Float[Array, "..."]]


class KernelCall(NamedTuple):
    """One use of a kernel.

    Attributes:
        path: the kernel's path in the parameters.
        output: the pre-activations, without the bias unless it was asked for.
        unit_axes: the axes of ``output`` that count units, in the kernel's order; None if the model
            reshaped or transposed the kernel before using it.
        units: the axes of ``output`` that count units, in whatever order.
    """

    path: Path
    output: Float[Array, "..."]
    unit_axes: tuple[int, ...] | None
    units: tuple[int, ...]


#: What is called with each use, in execution order; its result replaces the output.
Visit = Callable[[KernelCall], Float[Array, "..."]]


def run_layers(
    apply: Apply,
    params: PyTree,
    inputs: tuple[Any, ...],
    layout: Layout,
    visit: Visit,
    with_bias: bool = False,
) -> Any:
    """The model's output, with ``visit`` at each kernel that the layout knows.

    ``with_bias``: the pre-activations are seen after the bias, where it is added to the product
    directly; units come last in matrix products that have them first.

    Raises:
        ValueError: for a kernel that is not multiplied as it is, or is so inside a loop or a
            branch, where equations do not stand in execution order.
    """
    plain = effective(params)
    kernels = set(kernel_axes(undoubted(plain), layout))
    program = trace(apply, plain, inputs, kernels)
    _check_uses(program, kernels)
    biased = {id(step.makes.use) for step in program.steps if step.makes and step.makes.biased}

    def replace(product: Product, output: Any) -> Any:
        last = product.biased == (id(product.use) in biased)
        if not with_bias:
            return output if product.biased else visit(_call(product, output))
        return _units_last(product, output, visit) if last else output

    return program.run(replace)


def _check_uses(program: Program, kernels: set[Path]) -> None:
    for use in program.walk.uses:
        if use.within is not None and use.kernel.path in kernels:
            raise ValueError(
                f"the kernel {use.kernel.path!r} is used inside a {use.within}, where layers do "
                "not run one after the other. Leave it out of the layout, or initialize it by "
                "itself."
            )
    seen = {id(step.makes.use): step.makes.use.kernel.path for step in program.steps if step.makes}
    in_part = {use.kernel.path for use in program.walk.uses if id(use) not in seen}
    if unused := sorted(kernels - (set(seen.values()) - in_part)):
        raise ValueError(
            f"the model does not multiply its input by the kernels {listed(unused)} as they "
            "are, so their pre-activations cannot be measured. Leave them out of the layout."
        )


def _call(product: Product, output: Any) -> KernelCall:
    kernel, units = product.use.kernel, product.unit_axes()
    as_it_is = kernel.dims == whole(kernel.path, kernel.shape).dims
    return KernelCall(kernel.path, output, units if as_it_is else None, units)


def _units_last(product: Product, output: Any, visit: Visit) -> Any:
    """Visits the product with its rows first: ``vmap`` of ``w @ x`` has the units there."""
    call = _call(product, output)
    if not product.use.units_first or 0 not in call.units:
        return visit(call)
    last = tuple(range(output.ndim - len(call.units), output.ndim))
    moved = jnp.moveaxis(output, call.units, last)
    return jnp.moveaxis(visit(call._replace(output=moved, units=last)), last, call.units)


def kernel_axes(plain: PyTree, layout: Layout) -> dict[Path, Axes]:
    """The fan-in axes of each kernel by path."""
    return {path: axes for path, _, axes in constrained_leaves(layout, plain) if axes is not None}


def rescaled(params: PyTree, factors: Factors) -> PyTree:
    """The parameters with each kernel, plain or reparametrized, multiplied by its factor."""
    return rebuild_entries(
        params,
        [
            _rescaled(entry, factors[path]) if path in factors else entry
            for path, entry in entries(params)
        ],
    )


def _rescaled(entry: Any, factor: Float[Array, "..."]) -> Any:
    if is_node(entry):
        return entry.rescaled(factor)
    return jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), entry)
