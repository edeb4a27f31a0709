"""Kernels, plain or reparametrized, multiplied by factors."""

from typing import Any

import jax
from jaxtyping import Array, Float, PyTree

from jaxnorm._trees._paths import Path, entries, is_node, rebuild_entries

#: What each kernel is multiplied by, in the kernel's rank: one number, or one a unit, for all
#: layers that are stacked in it or for each of them.
Factors = dict[Path, Float[Array, "..."]]


def rescaled(params: PyTree, factors: Factors) -> PyTree:
    """The parameters with each kernel, plain or reparametrized, multiplied by its factor."""
    return rebuild_entries(
        params,
        [
            _rescaled(path, entry, factors[path]) if path in factors else entry
            for path, entry in entries(params)
        ],
    )


def _rescaled(path: Path, entry: Any, factor: Float[Array, "..."]) -> Any:
    if not is_node(entry):
        return jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), entry)
    if any(factor.shape[axis] != 1 for axis in entry.fan_in_axes):
        raise ValueError(
            f"the kernel {path!r} is reparametrized with the fan-in axes {entry.fan_in_axes}, and "
            "the model scans over layers, or has units, along one of them; wanted those that it "
            "sums over. Reparametrize with the layout traced_layout(apply, params, *inputs)."
        )
    return entry.rescaled(factor)
