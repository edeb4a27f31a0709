"""Conversions between the leaves of a node and the rows of the oracles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.oracles import Array, from_rows, rows
from tests.reparam.table import Row


def oracle_value(row: Row, node: Any) -> Array:
    """Effective kernel of a node, in float64."""
    v, s = _leaves(node)
    return from_rows(row.value(rows(v, node.fan_in_axes), s), v, node.fan_in_axes)


def oracle_gradients(row: Row, node: Any, cotangent: Any) -> list[Array]:
    """Gradients of sum(cotangent * kernel) with respect to the node's leaves, in float64."""
    (v, s), axes = _leaves(node), node.fan_in_axes
    of_v, of_s = row.pullback(rows(v, axes), s, rows(cotangent, axes))
    first = from_rows(of_v, v, axes)
    return [first] if of_s is None else [first, of_s.reshape(jax.tree.leaves(node)[1].shape)]


def oracle_start(row: Row, kernel: Any, axes: tuple[int, ...]) -> Array:
    """Documented value of ``effective(from_kernel(kernel))``, in float64."""
    return from_rows(row.start(rows(kernel, axes)), kernel, axes)


def weighted_sum(node: Any, cotangent: Any) -> Any:
    """Scalar whose gradient with respect to the kernel is ``cotangent``."""
    kernel = node.effective()
    wide = jnp.float64 if kernel.dtype == jnp.float64 else jnp.float32
    return (kernel.astype(wide) * cotangent.astype(wide)).sum()


@jax.jit
def value_and_gradients(node: Any, cotangent: Any) -> tuple[Any, list[Any]]:
    """Kernel, and the gradients of its `weighted_sum` in the order of the node's leaves."""
    gradients = jax.grad(weighted_sum)(node, cotangent)
    return node.effective(), jax.tree.leaves(gradients)


def assert_near(actual: Any, expected: Any, tolerance: dict[str, float], message: str = "") -> None:
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), expected, **tolerance, err_msg=message
    )


def _leaves(node: Any) -> tuple[Any, Any]:
    """Leaf of the kernel's shape, and the numbers per unit as a vector, or None."""
    v, *scales = jax.tree.leaves(node)
    return v, np.asarray(scales[0], np.float64).ravel() if scales else None
