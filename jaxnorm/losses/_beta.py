"""The learned beta of the variance constancy loss, kept positive."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import wide_dtype
from jaxnorm._trees._axes import unit_shape
from jaxnorm.losses._samples import SampleAxes, samples_of

#: softplus(ONE) = 1.
ONE = math.log(math.expm1(1))


def initial_betas(preactivations: PyTree, *, sample_axes: SampleAxes = (0,)) -> PyTree:
    """Raw betas, one a unit, of which `positive_betas` makes 1: the paper's initial value.

    Args:
        preactivations: a pytree of pre-activations, or of their shapes (``jax.eval_shape``).
        sample_axes: as in `variance_constancy_loss`; the other axes count units.

    Returns:
        A pytree of the same structure, of arrays in float32 or wider: parameters, for the
        optimizer, without weight decay.

    Raises:
        ValueError: for axes that an array does not have.

    The same on every device; it depends on shapes alone.

    Example:
        >>> raw = initial_betas({"dense": jnp.zeros((8, 3)), "conv": jnp.zeros((8, 2, 2, 4))})
        >>> raw["dense"].shape, raw["conv"].shape
        ((3,), (2, 2, 4))
        >>> positive_betas(raw)["dense"].tolist()
        [1.0, 1.0, 1.0]

    Source: Littwin and Wolf 2018, section 2.4.
    """

    def raw(x: Any) -> Float[Array, "..."]:
        shape = unit_shape(x, samples_of(x, sample_axes))
        return jnp.full(shape, ONE, wide_dtype(x.dtype))

    return jax.tree.map(raw, preactivations)


def positive_betas(raw: PyTree) -> PyTree:
    """Beta = log(1 + exp(raw)), leaf by leaf: positive for any raw value.

    The authors leave the sign of beta free. A negative one gives the loss a pole, where the second
    variance is -beta.

    Args:
        raw: a pytree of arrays, as `initial_betas` makes.

    Returns:
        A pytree of the same structure, shapes and types. Below raw = -87 float32 rounds beta to 0.

    Elementwise: the same under jit, pmap and shard_map.

    Example:
        >>> [round(float(beta), 4) for beta in positive_betas(jnp.array([-9.0, 0.0, 9.0]))]
        [0.0001, 0.6931, 9.0001]
    """
    return jax.tree.map(jax.nn.softplus, raw)
