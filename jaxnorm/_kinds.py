"""Kinds of reparametrized kernels: scaled, zero-sum, and normalized weights."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxnorm._axes import fan_in_size, negative_axes, per_unit, unit_shape
from jaxnorm._node import Axes, Reparametrization, effective_kernel
from jaxnorm._numerics import multiplied, promote, root, scale_dtype
from jaxnorm._phases import sizes_like, strides_of, unit_count, unit_sum
from jaxnorm._sphere import Kernel, center, check_centering, squared_norm, to_sphere


class Scaled(Reparametrization):
    """Scale per channel on top of a kernel, or of another reparametrization: w_i = gamma_i v_i.

    The scale of a normalization layer, applied to parameters instead of activations: the
    pre-activations gamma (v'x) + b are the same, at O(parameters) instead of O(batch x
    activations). Elementwise: equal under jit, vmap, pmap and shard_map; keeps shardings.

    Attributes:
        kernel: v, an array of the kernel's shape, or another node.
        scale: gamma, of the kernel's shape without its fan-in axes; of the kernel's type, or of
            bfloat16 if that has 8 bits.
        fan_in_axes: negative axes of the kernel; static.

    Example:
        >>> node = Scaled.from_kernel(jnp.ones((3, 2)), fan_in_axes=-2)
        >>> node.scale.shape, node.effective().shape
        ((2,), (3, 2))

    Source: Ikami et al. 2021, Eq. 6.
    """

    kernel_fields = ("kernel",)
    scale_field = "scale"

    kernel: Any
    scale: Any
    fan_in_axes: Axes

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "Scaled":
        """Returns the node whose effective value is ``kernel``: every gamma is 1.

        Args:
            kernel: an array, or a node of another kind with the same fan-in axes.
            fan_in_axes: axes of the kernel, positive or negative.
        """
        result = jax.eval_shape(lambda: effective_kernel(kernel))
        axes = negative_axes(fan_in_axes, result.ndim, "the kernel")
        return cls(kernel, jnp.ones(unit_shape(result, axes), scale_dtype(result.dtype)), axes)

    def rescaled(self, factor: Float[Array, "..."]) -> "Scaled":
        """Returns the node with ``factor`` times the scale; see `Reparametrization.rescaled`."""
        units = factor.squeeze(self.fan_in_axes) if factor.ndim else factor
        return self.replaced(scale=multiplied(self.scale, units))

    def effective(self) -> Kernel:
        """Returns the kernel gamma v, computed in float32 or wider, in the kernel's type."""
        kernel = effective_kernel(self.kernel)
        scale = per_unit(promote(self.scale, kernel), self.fan_in_axes)
        return (promote(kernel, self.scale) * scale).astype(kernel.dtype)


class LinearlyConstrained(Reparametrization):
    """Zero-sum units in coordinates: w_i = B v_i, B an orthonormal basis of {w : 1'w = 0}.

    B is never built. The Householder reflection H = I - 2 u u' / u'u, u = e_0 - 1/sqrt(m), swaps
    e_0 with 1/sqrt(m), so its other columns are the basis, and H v costs one sum and one pass:
    w_0 = s / sqrt(m) and w_j = v_j - s / (m - sqrt(m)), s = sum of v_j over j > 0.

    The coordinates have the kernel's shape, so they shard as the kernel does; the coordinate along
    1 is at the first place of the fan-in, reads as zero and gets a zero gradient: a unit has m - 1
    parameters.

    Under SGD with momentum and weight decay this is *identical* to training plain kernels with
    `centered_gradient` from a centered start, since B'B = I. Under Adam, or any other optimizer
    that treats coordinates one by one, it is not, and the result depends on the basis. In float16
    give Adam an ``eps`` of 1e-4: its usual one is 0 there, and makes NaN of a gradient of zero.

    The node stores basis coordinates, not weights: `project`, `sphere_projection`,
    `centered_gradient`, `metrics` and `constraint_drift` refuse it. On plain kernels
    ``sphere_projection(centered=True)`` keeps both the sums and the norms.

    A zero-sum kernel cancels a constant input only where all weights of a unit meet it: at a border
    of zero padding a shift stays. In a transposed convolution with a stride each position meets
    every stride-th tap; `traced_layout` knows, and the weights of each phase sum to zero.

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
    fan_in_axes: Axes

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "LinearlyConstrained":
        """Returns the node of the centered kernel: ``effective()`` is ``center(kernel)``.

        Raises ValueError for units with a single weight, which could only be zero.
        """
        plain = effective_kernel(kernel)
        axes = negative_axes(fan_in_axes, plain.ndim, "the kernel")
        check_centering(plain, axes, True, "the kernel")
        return cls(_to_coordinates(center(promote(plain), axes), axes).astype(plain.dtype), axes)

    def effective(self) -> Kernel:
        """Returns the zero-sum kernel B v, computed in float32 or wider, in the stored type."""
        wide = _from_coordinates(promote(self.coordinates), self.fan_in_axes)
        return wide.astype(self.coordinates.dtype)

    def parameter_count(self) -> int:
        """Returns the number of free coordinates: one fewer than weights per unit."""
        return int(self.coordinates.size) - unit_count(self.coordinates, self.fan_in_axes)


def _from_coordinates(coordinates: Kernel, axes: Axes) -> Kernel:
    """Returns H v with the coordinate along e_0 read as zero, in the gradient too."""
    # A mask, not indexing: a fan-in axis may be sharded.
    size, first = sizes_like(coordinates, axes), _is_first(coordinates, axes)
    free = jnp.where(first, 0, coordinates)
    total, size_root = unit_sum(free, axes), size**0.5
    return jnp.where(first, total / size_root, coordinates - total / (size - size_root))


def _to_coordinates(zero_sum: Kernel, axes: Axes) -> Kernel:
    """Returns H w of zero-sum weights: w_j + w_0 / (sqrt(m) - 1), and 0 along e_0."""
    size, first = sizes_like(zero_sum, axes), _is_first(zero_sum, axes)
    head = unit_sum(jnp.where(first, zero_sum, 0), axes)
    return jnp.where(first, 0, zero_sum + head / (size**0.5 - 1))


def _is_first(array: Kernel, axes: Axes) -> Bool[Array, "..."]:
    """Returns True at the first place of the fan-in; of size 1 along the other axes."""
    sizes = [size if axis - array.ndim in axes else 1 for axis, size in enumerate(array.shape)]
    index = jnp.zeros(sizes, jnp.int32)
    strides = strides_of(axes)
    for axis in axes:
        place = jax.lax.broadcasted_iota(jnp.int32, sizes, axis % array.ndim)
        index += place // strides.get(axis, 1)
    return index == 0


class WeightNormalized(Reparametrization):
    """Direction and length per unit: w_i = g_i v_i / ||v_i||.

    The gradient with respect to v is orthogonal to v and scales with g / ||v||. A zero direction
    has a zero effective kernel and zero gradients, never NaN: such a unit is dead. In a transposed
    convolution with a stride the length is that of a channel, over all of its phases.

    Under jit, vmap, pmap and with sharded arrays the result is the same; inside shard_map the
    fan-in must be whole.

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
    scale_field = "scale"

    #: True if each unit's mean is subtracted from its direction.
    centered: ClassVar[bool] = False

    direction: Any
    scale: Any
    fan_in_axes: Axes

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "WeightNormalized":
        """Returns the node of the kernel, or of the centered one: v is the kernel, g its norm."""
        return cls(*_with_norms(kernel, fan_in_axes, cls.centered))

    def effective(self) -> Kernel:
        """Returns the kernel g v / ||v||, computed in float32 or wider, in the direction's type."""
        return _on_sphere(self.direction, self.scale, self.fan_in_axes, 1.0, self.centered)


class CenteredWeightNormalized(WeightNormalized):
    """Zero-sum direction and length per unit: w_i = g_i (v_i - mean v_i) / ||v_i - mean v_i||.

    ``effective()`` of the node of a kernel is ``center(kernel)``. A unit of equal weights has a
    zero effective kernel and zero gradients, never NaN; units with a single weight, which have no
    zero-sum direction, are refused with a ValueError. In a transposed convolution with a stride
    each phase has its mean, and the length is that of a channel, over all of its phases.

    Under jit, vmap, pmap and with sharded arrays the result is the same; inside shard_map the
    fan-in must be whole.

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
    key_names: ClassVar[dict[str, str]] = {"direction": "centered_direction"}


class WeightStandardized(Reparametrization):
    """Standardized kernel with a gain per channel: w_i = gain_i (v_i - mean v_i) / std v_i.

    The standard deviation runs over the fan-in. The gradient with respect to v scales with gain /
    std v: it explodes if the raw weights shrink, which is why the method goes with a normalization
    of activations, and why `sphere_projection` exists. A unit of equal weights has a zero effective
    kernel and zero gradients, never NaN. In a transposed convolution with a stride each phase has
    its mean, and the deviation is that of a channel, over all of its phases.

    Under jit, vmap, pmap and with sharded arrays the result is the same; inside shard_map the
    fan-in must be whole.

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
    scale_field = "gain"

    kernel: Any
    gain: Any
    fan_in_axes: Axes

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "WeightStandardized":
        """Returns the node of the centered kernel, whose standard deviation is the first gain.

        Raises ValueError for units with a single weight, which have no standard deviation.
        """
        return cls(*_with_norms(kernel, fan_in_axes, centered=True, mean=True))

    def effective(self) -> Kernel:
        """Returns the standardized kernel, computed in float32 or wider, in the kernel's type."""
        size = float(fan_in_size(self.kernel, self.fan_in_axes))
        return _on_sphere(self.kernel, self.gain, self.fan_in_axes, size, centered=True)


def _with_norms(
    kernel: Any, fan_in_axes: int | Axes, centered: bool, mean: bool = False
) -> tuple[Kernel, Kernel, Axes]:
    """Returns the kernel, the norm (root mean square if ``mean``) per channel, and the axes."""
    plain = effective_kernel(kernel)
    axes = negative_axes(fan_in_axes, plain.ndim, "the kernel")
    check_centering(plain, axes, centered, "the kernel")
    wide = center(promote(plain), axes) if centered else promote(plain)
    squares = squared_norm(wide, tuple(axes))
    if mean:
        squares = squares / fan_in_size(plain, axes)
    return plain, root(squares).squeeze(axes).astype(scale_dtype(plain.dtype)), axes


def _on_sphere(
    kernel: Kernel, scale: Kernel, axes: Axes, squared_radius: float, centered: bool
) -> Kernel:
    """Multiplies the kernel's projection onto a sphere by ``scale``, in the kernel's type."""
    wide, gain = promote(kernel, scale), per_unit(promote(scale, kernel), axes)
    if strides_of(axes):  # Each phase has zero sums, and the channel's one length.
        wide, centered = center(wide, axes) if centered else wide, False
    deviation, factor = to_sphere(wide, tuple(axes), squared_radius, centered)
    # One factor per channel, so that its gradient is one pass over the kernel.
    return (deviation * (gain * factor)).astype(kernel.dtype)
