"""Weight normalization: a direction and a length per unit."""

from typing import Any

from jaxtyping import Array, Float

from jaxnorm._constraints._unit import squared_norm, to_sphere
from jaxnorm._numerics import promote, root
from jaxnorm._trees._axes import negative_axes, per_unit
from jaxnorm._trees._node import Axes, Reparametrization, kernel_of, register_node, static_field


@register_node
class WeightNormalized(Reparametrization):
    """w_i = g_i v_i / ||v_i||: the length of each unit's weights is a parameter of its own.

    The gradient with respect to v is orthogonal to it and scales with g / ||v||. A zero direction
    has a zero effective kernel and zero gradients, never NaN: such a unit is dead.

    Attributes:
        direction: v, an array of the kernel's shape and type.
        scale: g, of the kernel's shape without its fan-in axes.
        fan_in_axes: negative axes of the kernel; static.

    Example:
        >>> import jax.numpy as jnp
        >>> node = WeightNormalized.from_kernel(jnp.array([[3.0], [4.0]]), -2)
        >>> node.scale.tolist(), node.effective().ravel().tolist()
        ([5.0], [3.0, 4.0])

    Source: Salimans and Kingma 2016; the initial g = ||v|| keeps the initializer's weights.
    """

    kernel_fields = ("direction",)

    direction: Any
    scale: Any
    fan_in_axes: Axes = static_field()

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "WeightNormalized":
        """The node of exactly this kernel: v is the kernel, g its norm."""
        weights = kernel_of(kernel)
        axes = negative_axes(fan_in_axes, weights.ndim, "the kernel")
        norm = root(squared_norm(promote(weights), axes)).squeeze(axes)
        return cls(weights, norm.astype(weights.dtype), axes)

    def effective(self) -> Float[Array, "..."]:
        """The kernel g v / ||v||, computed in float32 or wider, in the direction's type."""
        return scaled_point(self.direction, self.scale, self.fan_in_axes, 1.0, centered=False)


def scaled_point(
    weights: Float[Array, "..."],
    scale: Float[Array, "..."],
    axes: Axes,
    squared_radius: float,
    centered: bool,
) -> Float[Array, "..."]:
    """``scale`` times the projection of ``weights`` onto a sphere, in the type of ``weights``."""
    wide, gain = promote(weights, scale), per_unit(promote(scale, weights), axes)
    deviation, factor = to_sphere(wide, axes, squared_radius, centered)
    # One factor a unit, so that its gradient is one pass over the kernel.
    return (deviation * (gain * factor)).astype(weights.dtype)
