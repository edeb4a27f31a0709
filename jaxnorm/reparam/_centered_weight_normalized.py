"""Centered weight normalization: weight normalization of zero-mean directions."""

from typing import Any

from jaxtyping import Array, Float

from jaxnorm._constraints._unit import center, check_sphere, squared_norm
from jaxnorm._numerics import promote, root
from jaxnorm._trees._axes import negative_axes
from jaxnorm._trees._node import Axes, Reparametrization, kernel_of, register_node, static_field
from jaxnorm.reparam._weight_normalized import scaled_point


@register_node
class CenteredWeightNormalized(Reparametrization):
    """w_i = g_i (v_i - mean v_i) / ||v_i - mean v_i||: zero-sum units with a length of their own.

    A unit of equal weights has a zero effective kernel and zero gradients, never NaN.

    Attributes:
        direction: v, an array of the kernel's shape and type.
        scale: g, of the kernel's shape without its fan-in axes.
        fan_in_axes: negative axes of the kernel; static.

    Example:
        >>> import jax.numpy as jnp
        >>> node = CenteredWeightNormalized.from_kernel(jnp.array([[1.0], [7.0]]), -2)
        >>> [round(float(w), 5) for w in node.effective().ravel()]
        [-3.0, 3.0]

    Source: Huang et al. 2017 (centered weight normalization); their fixed g is a parameter here.
    """

    kernel_fields = ("direction",)

    direction: Any
    scale: Any
    fan_in_axes: Axes = static_field()

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "CenteredWeightNormalized":
        """The node of the centered kernel: ``effective()`` is ``center(kernel)``.

        Raises ValueError for units with a single weight, which have no zero-mean direction.
        """
        weights = kernel_of(kernel)
        axes = negative_axes(fan_in_axes, weights.ndim, "the kernel")
        check_sphere(weights, axes, True, "the kernel")
        norm = root(squared_norm(center(promote(weights), axes), axes)).squeeze(axes)
        return cls(weights, norm.astype(weights.dtype), axes)

    def effective(self) -> Float[Array, "..."]:
        """The zero-sum kernel, computed in float32 or wider, in the direction's type."""
        return scaled_point(self.direction, self.scale, self.fan_in_axes, 1.0, centered=True)
