"""Initial weights that are fitted to a minibatch: factors on kernels, and new biases."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import known_values
from jaxnorm._node import is_node
from jaxnorm._numerics import ROUNDING_ERRORS, multiplied, nonzero, promote, rounding_floor
from jaxnorm._paths import Path, listed, map_entries
from jaxnorm._phases import strides_of
from jaxnorm._trace.layers import KernelCall

Values = Float[Array, "..."]

#: The factor of each kernel, in the kernel's rank: one number or one per unit, common to the layers
#: of a stack or one per layer.
Factors = dict[Path, Values]

#: The new biases.
Biases = dict[Path, Values]

#: ``params -> (factors, new biases)``.
Fit = Callable[[PyTree], tuple[Factors, Biases]]

#: The passes after the first one over a model that rounds its kernels; the logarithm of a factor at
#: which a rounded kernel counts as fitted; and the part of the last one that is no progress.
PASSES, ROUNDED, STALLED = 10, 0.037, 0.9


def fitted(fit: Fit, params: PyTree, fits: tuple[Factors, Biases], rounded: set[Path]) -> PyTree:
    """Fits parameters, and again if the model rounds kernels: q(f w) is not f q(w).

    ``fits`` is the result of ``fit(params)``, and ``rounded`` has the rounded kernels. Raises
    ValueError, or makes the kernel NaN in a trace, if it is not fitted after some passes.
    """

    def sizes_of(factors: Factors) -> Factors:
        return {path: jnp.abs(jnp.log(factors[path])) for path in rounded}

    def fitted_again(_: Any, state: tuple[PyTree, Factors]) -> tuple[PyTree, Factors]:
        params, before = state
        factors, biases = fit(params)
        sizes = sizes_of(factors)
        # Units that are fitted stay: another factor would round them in another way. Those that no
        # factor changes stay too: they would grow without end.
        moves = {
            path: (x > ROUNDED) & (x < jnp.maximum(0.5, STALLED * before[path]))
            for path, x in sizes.items()
        }
        steps = {path: jnp.where(is_off, factors[path], 1) for path, is_off in moves.items()}
        return updated(params, factors | steps, biases), sizes

    result = updated(params, *fits)
    if not rounded:
        return result
    passes = (result, sizes_of(fits[0]))
    result, sizes = jax.lax.fori_loop(0, PASSES, fitted_again, passes)
    off = {path: (x > ROUNDED).any(keepdims=True) for path, x in sizes.items()}
    if bad := sorted(path for path, x in off.items() if np.any(known_values(x))):
        raise ValueError(
            f"the model rounds the kernels {listed(bad)}, and no factor on them gives their "
            "pre-activations unit variance (the sign of a kernel has no scale, and coarse levels "
            "have few); wanted a rounding whose scale follows the kernel's, such as the sign times "
            "the mean size of a unit's weights. Or leave them out of the layout."
        )
    return updated(result, {path: jnp.where(x, jnp.nan, 1.0) for path, x in off.items()}, {})


def mean_and_factor(
    call: KernelCall, sample_axes: tuple[int, ...] | None = None
) -> tuple[Values, Values]:
    """Mean of the pre-activations, and 1 over their standard deviation.

    The factor is 1 if all values are equal up to rounding, and NaN if the variance is traced and
    not finite. Raises ValueError for a known variance that is not finite.
    """
    if not call.output.size:
        raise ValueError(
            f"the pre-activations of the kernel {call.path!r} have the shape {call.output.shape}: "
            "the minibatch is empty; wanted at least two rows of data."
        )
    wide = promote(call.output)
    mean, variance = wide.mean(sample_axes), wide.var(sample_axes)
    if not isinstance(variance, jax.core.Tracer) and not np.isfinite(variance).all():
        raise ValueError(
            f"the pre-activations of the kernel {call.path!r} are infinite or NaN, or their "
            "squares overflow, so their variance is not finite; wanted a minibatch and parameters "
            "that are finite. Look for NaN in the inputs, and at the outputs of the layers before "
            "this one."
        )
    # A sum over a whole minibatch gathers more errors than a sum over one unit's weights.
    is_constant = variance <= rounding_floor(mean, 8 * ROUNDING_ERRORS)
    factor = 1 / jnp.sqrt(nonzero(variance, is_constant))
    return mean, jnp.where(jnp.isfinite(variance), factor, jnp.nan)


def updated(params: PyTree, factors: Factors, biases: Biases) -> PyTree:
    """Parameters with rescaled kernels, plain or reparametrized, and new biases."""

    def updated_entry(path: Path, entry: Any) -> Any:
        if path in factors:
            factor = factors[path]
            if is_node(entry):
                strides = strides_of(entry.fan_in_axes)
                whole = [axis for axis in entry.fan_in_axes if axis not in strides]
                if any(factor.shape[axis] != 1 for axis in whole):
                    raise ValueError(
                        f"the kernel {path!r} is reparametrized with the fan-in axes "
                        f"{entry.fan_in_axes}, and the model scans over layers, or has units, "
                        "along one of them; reparametrize with the layout traced_layout(net)."
                    )
                return entry.rescaled(factor)
            return jax.tree.map(lambda kernel: multiplied(kernel, factor), entry)
        if path in biases:
            return jax.tree.map(lambda x: biases[path].reshape(x.shape).astype(x.dtype), entry)
        return entry

    return map_entries(updated_entry, params)
