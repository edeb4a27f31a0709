"""Mesh axes along which the arrays of a device vary inside shard_map."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array


def varying_axes(value: Any) -> frozenset[str]:
    """Mesh axes along which an array, or an abstract value, varies inside shard_map.

    Empty outside of shard_map, under pmap, and for ``check_vma=False``.
    """
    aval = value if isinstance(value, jax.core.AbstractValue) else jax.typeof(value)
    # JAX 0.10 has moved ``vma`` into the type of the manual axes.
    axes = getattr(getattr(aval, "manual_axis_type", None), "varying", None)
    result: frozenset[str] = getattr(aval, "vma", frozenset()) if axes is None else axes
    return result


def whole(function: Callable[..., Array]) -> Callable[..., Array]:
    """Returns a function whose first argument may be split along explicit axes of a mesh.

    The result is split as that argument is. Without explicit axes the function itself is called.
    """

    def automatic(x: Array, *rest: Array) -> Array:
        sharding = jax.typeof(x).sharding
        if not sharding.mesh.explicit_axes:
            return function(x, *rest)
        result: Array = jax.sharding.auto_axes(function, out_sharding=sharding)(x, *rest)
        return result

    return automatic


def vary_alike(*arrays: Array) -> tuple[Array, ...]:
    """Casts arrays so that all vary along the mesh axes of each, as derivatives have to."""
    axes = frozenset().union(*map(varying_axes, arrays))
    missing = [tuple(sorted(axes - varying_axes(x))) for x in arrays]
    pairs = zip(arrays, missing, strict=True)
    return tuple(jax.lax.pcast(x, names, to="varying") if names else x for x, names in pairs)
