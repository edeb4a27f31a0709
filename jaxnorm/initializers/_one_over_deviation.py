"""What pre-activations are multiplied by, so that their variance is 1."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._paths import Path
from jaxnorm._unit import rounding_floor

Values = Float[Array, "..."]


def one_over_deviation(mean: Values, variance: Values, path: Path) -> Values:
    """1 over the standard deviation; 1 where all values are equal, but for rounding.

    Where the variance is not finite: NaN if it is traced, so that it is seen in the kernel, else
    ValueError, with the kernel's path.
    """
    if not isinstance(variance, jax.core.Tracer) and not np.isfinite(variance).all():
        raise ValueError(
            f"the pre-activations of the kernel {path!r} are infinite or NaN, or their squares "
            "overflow, so their variance is not finite; wanted a minibatch and parameters that are "
            "finite. Look for NaN in the inputs, and at what the layers before this one make."
        )
    varies = ~(variance <= rounding_floor(mean))
    factor = 1 / jnp.sqrt(jnp.where(varies, variance, 1.0))
    return jnp.where(jnp.isfinite(variance), factor, jnp.nan)
