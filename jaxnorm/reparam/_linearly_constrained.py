"""Linearly constrained weights: kernels whose units sum to zero, through an O(m) reflection."""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._constraints._unit import center, check_sphere
from jaxnorm._numerics import promote
from jaxnorm._trees._axes import fan_in, first_place, negative_axes
from jaxnorm._trees._node import Axes, Reparametrization, kernel_of, register_node, static_field

Weights = Float[Array, "..."]


@register_node
class LinearlyConstrained(Reparametrization):
    """w_i = B v_i with 1'w_i = 0: coordinates in an orthonormal basis of the zero-sum vectors.

    B is never built. The Householder reflection H = I - 2 u u' / u'u, u = e_0 - 1/sqrt(m), swaps
    e_0 with 1/sqrt(m), so its other columns are the basis, and H v costs one sum and one pass:
    w_0 = s / sqrt(m) and w_j = v_j - s / (m - sqrt(m)), s = sum of v_j over j > 0.

    The coordinates keep the kernel's shape, so they shard as it does; the one along 1 is at the
    first place of the fan-in, reads as zero and gets a zero gradient: a unit has m - 1 parameters.

    Under SGD with momentum and weight decay this is *identical* to training plain kernels with
    `centered_gradient` from a centered start, since B'B = I. Under Adam, or any other optimizer
    that treats coordinates one by one, it is not, and the result depends on the basis. In float16
    give Adam an ``eps`` of 1e-4: its usual one is 0 there, and makes NaN of a gradient of zero.

    The coordinates are no weights: `project`, `sphere_projection`, `centered_gradient`, `metrics`
    and `constraint_drift` refuse them. ``sphere_projection(centered=True)`` on plain kernels keeps
    their sums and their norms.

    A zero-sum kernel cancels a constant input only where the window is full: under zero padding the
    border keeps a shift.

    Attributes:
        coordinates: v, an array of the kernel's shape and type.
        fan_in_axes: negative axes of the kernel; static.

    Example:
        >>> node = LinearlyConstrained.from_kernel(jnp.array([[1.0], [2.0], [6.0]]), -2)
        >>> [round(float(w), 5) for w in node.effective().ravel()]
        [-2.0, -1.0, 3.0]

    Source: Kutsuna 2019 (linearly constrained weights), sections 3.1 and 3.2.
    """

    kernel_fields = ("coordinates",)
    stores_weights = False

    coordinates: Any
    fan_in_axes: Axes = static_field()

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "LinearlyConstrained":
        """The node of the centered kernel: ``effective()`` is ``center(kernel)``.

        Raises ValueError for units with a single weight, which could only be zero.
        """
        weights = kernel_of(kernel)
        axes = negative_axes(fan_in_axes, weights.ndim, "the kernel")
        check_sphere(weights, axes, True, "the kernel")
        wide = promote(weights)
        return cls(_coordinates(center(wide, axes), axes).astype(weights.dtype), axes)

    def effective(self) -> Weights:
        """The zero-sum kernel B v, computed in float32 or wider, in the coordinates' type."""
        wide = _zero_sum(promote(self.coordinates), self.fan_in_axes)
        return wide.astype(self.coordinates.dtype)

    def parameter_count(self) -> int:
        """The free coordinates: one fewer than weights in each unit."""
        size = fan_in(self.coordinates, self.fan_in_axes)
        return int(self.coordinates.size // size * (size - 1))


def _zero_sum(coordinates: Weights, axes: Axes) -> Weights:
    """H v, reading the coordinate along e_0 as zero. Its transpose, and gradient, is masked too."""
    # A mask, not indexing: a fan-in axis may be sharded.
    size, first = fan_in(coordinates, axes), first_place(coordinates, axes)
    free = jnp.where(first, 0, coordinates)
    along, root = free.sum(axes, keepdims=True), math.sqrt(size)
    return jnp.where(first, along / root, coordinates - along / (size - root))


def _coordinates(zero_sum: Weights, axes: Axes) -> Weights:
    """H w of zero-sum weights: w_j + w_0 / (sqrt(m) - 1), and 0 along e_0."""
    size, first = fan_in(zero_sum, axes), first_place(zero_sum, axes)
    head = jnp.where(first, zero_sum, 0).sum(axes, keepdims=True)
    return jnp.where(first, 0, zero_sum + head / (math.sqrt(size) - 1))
