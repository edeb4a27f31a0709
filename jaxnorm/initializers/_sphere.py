"""Random weights on the sphere."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer
from jaxtyping import Array, Float

from jaxnorm._constraints._unit import check_sphere, check_squared_radius, project_to_sphere
from jaxnorm._numerics import wide_dtype
from jaxnorm._trees._axes import negative_axes


def sphere(
    squared_radius: float = 2.0,
    centered: bool = True,
    fan_in_axes: int | Iterable[int] | None = None,
) -> Initializer:
    """Units drawn uniformly from {w : ||w||^2 = c, and 1'w = 0 if centered}.

    With c = 2, He et al.'s variance for ReLU networks, n Var(w) / 2 = 1, holds in every unit.

    Args:
        squared_radius: c, a positive number.
        centered: whether the units are zero-mean.
        fan_in_axes: the axes of one unit's weights; all but the last if None, as Flax has it.

    Returns:
        An initializer ``(key, shape, dtype) -> array``, for ``kernel_init`` of Flax, Haiku and
        others. Calling it raises ValueError where a centered unit has a single weight.

    Raises:
        ValueError: for c that is not positive.

    Example:
        >>> kernel = sphere()(jax.random.key(0), (3, 3, 8, 16))
        >>> bool(jnp.allclose((kernel**2).sum((0, 1, 2)), 2.0))
        True

    Source: Ikami et al. 2021, sections 3.1 and 3.2 (Eq. 4 for c = 2).
    """
    check_squared_radius(squared_radius, "the initializer")

    def init(
        key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None
    ) -> Float[Array, "..."]:
        target = jax.ShapeDtypeStruct(tuple(shape), dtype)
        given = range(len(shape) - 1) if fan_in_axes is None else fan_in_axes
        axes = negative_axes(given, len(shape), "the kernel")
        check_sphere(target, axes, centered, "the kernel")
        wide = jax.random.normal(key, shape, wide_dtype(dtype))
        point = project_to_sphere(wide, axes, squared_radius, centered).astype(dtype)
        return (
            point if out_sharding is None else jax.lax.with_sharding_constraint(point, out_sharding)
        )

    return init
