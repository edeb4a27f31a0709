"""One pass over a model's layers in execution order, whatever library it is written in."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Float, PyTree

from jaxnorm._constrained import constrained_leaves
from jaxnorm._doubts import undoubted
from jaxnorm._kernel_calls import KernelCall, visit_kernels
from jaxnorm._layout import Layout
from jaxnorm._node import Axes
from jaxnorm._paths import Path, entries, is_node, listed, rebuild_entries
from jaxnorm.reparam._effective import effective

#: ``apply(params, *inputs)``: the model as a function of its plain parameters.
Apply = Callable[..., Any]

#: What each kernel is multiplied by: a scalar, or one value per unit in the kernel's rank.
Factors = dict[Path, Float[Array, "..."]]


def run_layers(
    apply: Apply,
    params: PyTree,
    inputs: tuple[Any, ...],
    layout: Layout,
    visit: Callable[[KernelCall], Float[Array, "..."]],
    with_bias: bool = False,
) -> Any:
    """The model's output, with ``visit`` at each kernel that the layout knows."""
    plain = effective(params)
    fan_in_axes = kernel_axes(undoubted(plain), layout)
    kernels = {path: leaf for path, leaf in entries(plain) if path in fan_in_axes}
    seen: set[Path] = set()

    def visit_and_note(call: KernelCall) -> Float[Array, "..."]:
        seen.add(call.path)
        return visit(call)

    def run(kernels: dict[Path, Any], *inputs: Any) -> Any:
        merged = [kernels.get(path, entry) for path, entry in entries(plain)]
        return apply(rebuild_entries(plain, merged), *inputs)

    output = visit_kernels(run, kernels, inputs, visit_and_note, with_bias)
    unused = sorted(set(kernels) - seen)
    if unused:
        raise ValueError(
            f"the model does not multiply its input by the kernels {listed(unused)} as they "
            "are, so their pre-activations cannot be measured. Leave them out of the layout."
        )
    return output


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
