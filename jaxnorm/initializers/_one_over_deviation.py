"""What pre-activations are multiplied by, so that their variance is 1."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._numerics import ROUNDING_ERRORS, nonzero, rounding_floor
from jaxnorm._trees._paths import Path

Values = Float[Array, "..."]


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
