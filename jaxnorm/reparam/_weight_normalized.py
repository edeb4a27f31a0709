"""Weight normalization, plain, centered and standardized: a direction and a length a unit."""

from typing import Any, ClassVar

from jaxnorm._constraints._unit import Weights, center, check_sphere, squared_norm, to_sphere
from jaxnorm._numerics import promote, root
from jaxnorm._trees._axes import fan_in, negative_axes, per_unit
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

    #: Whether the mean of each unit is taken from its direction.
    centered: ClassVar[bool] = False

    direction: Any
    scale: Any
    fan_in_axes: Axes = static_field()

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "WeightNormalized":
        """The node of exactly this kernel, or of the centered one: v is the kernel, g its norm."""
        return cls(*_with_lengths(kernel, fan_in_axes, cls.centered))

    def effective(self) -> Weights:
        """The kernel g v / ||v||, computed in float32 or wider, in the direction's type."""
        return _scaled_point(self.direction, self.scale, self.fan_in_axes, 1.0, self.centered)


@register_node
class CenteredWeightNormalized(WeightNormalized):
    """w_i = g_i (v_i - mean v_i) / ||v_i - mean v_i||: zero-sum units with a length of their own.

    ``effective()`` of the node of a kernel is ``center(kernel)``. A unit of equal weights has a
    zero effective kernel and zero gradients, never NaN; units with a single weight, which have no
    zero-mean direction, are refused with a ValueError.

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

    centered = True


@register_node
class WeightStandardized(Reparametrization):
    """w_i = gain_i (v_i - mean v_i) / std v_i, with the standard deviation over the fan-in.

    The gradient with respect to v scales with gain / std v: it explodes where the raw weights
    shrink, which is why the method goes with a normalization of activations, and why
    `sphere_projection` exists. A unit of equal weights has a zero effective kernel and zero
    gradients, never NaN.

    Attributes:
        kernel: v, an array of the kernel's shape and type.
        gain: of the kernel's shape without its fan-in axes.
        fan_in_axes: negative axes of the kernel; static.

    Example:
        >>> import jax.numpy as jnp
        >>> node = WeightStandardized.from_kernel(jnp.array([[1.0], [7.0]]), -2)
        >>> node.gain.tolist(), node.effective().ravel().tolist()
        ([3.0], [-3.0, 3.0])

    Source: Qiao et al. 2019 (weight standardization); Ikami et al. 2021, Eqs. 15-19. Qiao et al.
    have no gain, which changes nothing in front of batch normalization.
    """

    kernel_fields = ("kernel",)

    kernel: Any
    gain: Any
    fan_in_axes: Axes = static_field()

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "WeightStandardized":
        """The node of the centered kernel: the gain starts at the kernel's standard deviation.

        Raises ValueError for units with a single weight, which have no standard deviation.
        """
        return cls(*_with_lengths(kernel, fan_in_axes, centered=True, mean=True))

    def effective(self) -> Weights:
        """The standardized kernel, computed in float32 or wider, in the kernel's type."""
        size = float(fan_in(self.kernel, self.fan_in_axes))
        return _scaled_point(self.kernel, self.gain, self.fan_in_axes, size, centered=True)


def _with_lengths(
    kernel: Any, fan_in_axes: int | Axes, centered: bool, mean: bool = False
) -> tuple[Weights, Weights, Axes]:
    """The kernel, the norm of each unit or the root of its ``mean`` square, and the axes."""
    weights = kernel_of(kernel)
    axes = negative_axes(fan_in_axes, weights.ndim, "the kernel")
    check_sphere(weights, axes, centered, "the kernel")
    wide = center(promote(weights), axes) if centered else promote(weights)
    squares = squared_norm(wide, axes)
    if mean:
        squares = squares / fan_in(weights, axes)
    return weights, root(squares).squeeze(axes).astype(weights.dtype), axes


def _scaled_point(
    weights: Weights, scale: Weights, axes: Axes, squared_radius: float, centered: bool
) -> Weights:
    """``scale`` times the projection of ``weights`` onto a sphere, in the type of ``weights``."""
    wide, gain = promote(weights, scale), per_unit(promote(scale, weights), axes)
    deviation, factor = to_sphere(wide, axes, squared_radius, centered)
    # One factor a unit, so that its gradient is one pass over the kernel.
    return (deviation * (gain * factor)).astype(weights.dtype)
