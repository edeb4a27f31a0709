"""Kernels, plain or reparametrized, multiplied so that pre-activations have variance 1."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import ROUNDING_ERRORS, nonzero, rounding_floor
from jaxnorm._trees._paths import Path, entries, is_node, rebuild_entries

#: What each kernel is multiplied by, in the kernel's rank: one number, or one a unit, for all
#: layers that are stacked in it or for each of them.
Factors = dict[Path, Float[Array, "..."]]

Values = Float[Array, "..."]


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


def one_over_deviation(mean: Values, variance: Values, path: Path) -> Values:
    """1 over the standard deviation; 1 where all values are equal up to rounding.

    Where the variance is not finite: NaN if it is traced, so that it is seen in the kernel, else
    ValueError, with the kernel's path.
    """
    if not isinstance(variance, jax.core.Tracer) and not np.isfinite(variance).all():
        raise ValueError(
            f"the pre-activations of the kernel {path!r} are infinite or NaN, or their squares "
            "overflow, so their variance is not finite; wanted a minibatch and parameters that are "
            "finite. Look for NaN in the inputs, and at what the layers before this one make."
        )
    # A sum over a whole minibatch gathers more errors than one over a unit's weights.
    equal = variance <= rounding_floor(mean, 8 * ROUNDING_ERRORS)
    factor = 1 / jnp.sqrt(nonzero(variance, equal))
    return jnp.where(jnp.isfinite(variance), factor, jnp.nan)
