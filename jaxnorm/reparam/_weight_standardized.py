"""Weight standardization: units of zero mean and unit standard deviation, times a gain."""

from typing import Any

from jaxtyping import Array, Float

from jaxnorm._constraints._unit import center, check_sphere, squared_norm
from jaxnorm._numerics import promote, root
from jaxnorm._trees._axes import fan_in, negative_axes
from jaxnorm._trees._node import Axes, Reparametrization, kernel_of, register_node, static_field
from jaxnorm.reparam._weight_normalized import scaled_point


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
        weights = kernel_of(kernel)
        axes = negative_axes(fan_in_axes, weights.ndim, "the kernel")
        check_sphere(weights, axes, True, "the kernel")
        variance = squared_norm(center(promote(weights), axes), axes) / fan_in(weights, axes)
        return cls(weights, root(variance).squeeze(axes).astype(weights.dtype), axes)

    def effective(self) -> Float[Array, "..."]:
        """The standardized kernel, computed in float32 or wider, in the kernel's type."""
        squared_radius = float(fan_in(self.kernel, self.fan_in_axes))
        return scaled_point(self.kernel, self.gain, self.fan_in_axes, squared_radius, centered=True)
