"""A learned scale per unit, multiplied into the kernel instead of the activations."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._numerics import promote
from jaxnorm._trees._axes import negative_axes, per_unit, unit_shape
from jaxnorm._trees._node import Axes, Reparametrization, kernel_of, register_node, static_field


@register_node
class Scaled(Reparametrization):
    """w_i = gamma_i v_i: a scale per unit on top of a kernel (or of another reparametrization).

    What a normalization layer's scale does to activations, done to parameters: the pre-activations
    gamma (v'x) + b are the same, at O(parameters) instead of O(batch x activations).

    Attributes:
        kernel: v, an array of the kernel's shape, or another node.
        scale: gamma, of the kernel's shape without its fan-in axes; the kernel's type.
        fan_in_axes: negative axes of the kernel; static.

    Example:
        >>> node = Scaled.from_kernel(jnp.ones((3, 2)), fan_in_axes=-2)
        >>> node.scale.shape, node.effective().shape
        ((2,), (3, 2))

    Source: Ikami et al. 2021, Eq. 6.
    """

    kernel_fields = ("kernel",)

    kernel: Any
    scale: Any
    fan_in_axes: Axes = static_field()

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "Scaled":
        """A node whose effective value is ``kernel``: every gamma is 1.

        Args:
            kernel: an array, or a node of another kind with the same fan-in axes.
            fan_in_axes: axes of the kernel, positive or negative.
        """
        result = jax.eval_shape(lambda: kernel_of(kernel))
        axes = negative_axes(fan_in_axes, result.ndim, "the kernel")
        return cls(kernel, jnp.ones(unit_shape(result, axes), result.dtype), axes)

    def rescaled(self, factor: Float[Array, "..."]) -> "Scaled":
        """The same kernel with ``factor`` times the scale; see `Reparametrization.rescaled`."""
        units = factor.squeeze(self.fan_in_axes) if factor.ndim else factor
        return dataclasses.replace(self, scale=self.scale * units.astype(self.scale.dtype))

    def effective(self) -> Float[Array, "..."]:
        """The kernel gamma v, computed in float32 or wider, in the kernel's type."""
        kernel = kernel_of(self.kernel)
        scale = per_unit(promote(self.scale, kernel), self.fan_in_axes)
        return (promote(kernel, self.scale) * scale).astype(kernel.dtype)
