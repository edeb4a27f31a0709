"""Kernels that moving averages normalize: the node, and batch normalization's backward pass."""

import math
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._axes import negative_axes, per_unit, unit_shape
from jaxnorm._checks import warn
from jaxnorm._mesh import vary_alike
from jaxnorm._node import Axes, Reparametrization
from jaxnorm._numerics import promote, quotient, scale_dtype, wide_dtype
from jaxnorm._trace.layers import KernelCall

Values = Float[Array, "..."]

#: What is added to a variance, as batch normalization does.
EPSILON = 1e-5

#: Factor on averages, and on the sums of statistics that travel with gradients: no norm of
#: parameters or gradients sees them, and a penalty on all parameters is nothing beside the sums.
TINY = 2.0**-60

#: Values of a unit in a group from which the backward pass leaves something of a gradient.
LEAST_VALUES = 3


def deviation(variance: Values) -> Values:
    """Returns the standard deviation that batch normalization divides by."""
    return jnp.sqrt(variance + EPSILON)


class MovingAverages(Reparametrization):
    """Kernel that moving averages of its units' mean and variance normalize: w = γ V / σ.

    With σ = sqrt(variance + 1e-5). The mean μ is folded into the layer's bias, b = β - γ μ / σ,
    which is a leaf of its own. Elementwise: equal under jit, vmap, pmap and shard_map.

    Attributes:
        direction: V, of the kernel's shape and type.
        scale: γ, of the kernel's shape without its fan-in axes; of the kernel's type, or of
            bfloat16 if that has 8 bits.
        stored_mean: `mean`, the average of the mean of a unit's V x, times 2^-60, of that shape, in
            float32 or wider.
        stored_variance: `variance`, the average of its variance, likewise.
        count: zeros; its gradient is the number of values behind the gradients of the averages.
        fan_in_axes: negative axes of the kernel; static.

    Example:
        >>> node = MovingAverages.from_kernel(jnp.ones((3, 2)), fan_in_axes=-2)
        >>> node.with_averages(jnp.zeros(2), jnp.full(2, 4 - EPSILON)).effective().tolist()[0]
        [0.5, 0.5]

    Source: Ioffe and Szegedy 2015, the inference of Algorithm 2.
    """

    kernel_fields = ("direction",)

    direction: Any
    scale: Any
    stored_mean: Any
    stored_variance: Any
    count: Any
    fan_in_axes: Axes

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "MovingAverages":
        """Returns the node of means 0 and variances 1 - 1e-5, whose effective value is ``kernel``.

        Args:
            kernel: an array.
            fan_in_axes: axes of the kernel, positive or negative.
        """
        axes = negative_axes(fan_in_axes, kernel.ndim, "the kernel")
        zeros = jnp.zeros(unit_shape(kernel, axes), wide_dtype(kernel.dtype))
        ones = jnp.ones_like(zeros)
        scale = ones.astype(scale_dtype(kernel.dtype))
        node = cls(kernel, scale, zeros, zeros, jnp.zeros_like(zeros), axes)
        return node.with_averages(zeros, ones - EPSILON)

    @property
    def mean(self) -> Values:
        """Average of the mean of a unit's V x, μ."""
        return self.stored_mean / TINY  # type: ignore[no-any-return]

    @property
    def variance(self) -> Values:
        """Average of the variance of a unit's V x."""
        return self.stored_variance / TINY  # type: ignore[no-any-return]

    def with_averages(self, mean: Values, variance: Values) -> "MovingAverages":
        """Returns the node with these averages, in the type of its own."""
        mean, variance = (TINY * x.astype(self.stored_mean.dtype) for x in (mean, variance))
        return self.replaced(stored_mean=mean, stored_variance=variance)

    def std(self) -> Values:
        """Returns σ, a constant to derivatives."""
        return deviation(promote(jax.lax.stop_gradient(self.variance)))

    def factor(self) -> Values:
        """Returns γ / σ, by which the unit is multiplied."""
        return promote(self.scale) / self.std()

    def effective(self) -> Values:
        """Returns the kernel, computed in float32 or wider, in the type of the direction.

        The averages are constants to derivatives, of which it warns: they would learn nothing.
        """
        return _differentiated(self.direction, per_unit(self.factor(), self.fan_in_axes))

    def frozen(self) -> Values:
        """Returns the kernel, whose gradient reaches the direction alone."""
        factor = jax.lax.stop_gradient(self.factor())
        return _product(self.direction, per_unit(factor, self.fan_in_axes))

    def offset(self) -> Values:
        """Returns γ μ / σ, which the bias takes away."""
        return self.factor() * promote(self.mean)

    def rescaled(self, factor: Values) -> NoReturn:
        """Raises TypeError: the offset in the bias would not be rescaled."""
        del factor
        raise TypeError(
            "MovingAverages have a part of the layer's bias, which a factor on the kernel does not "
            "reach; scale the plain parameters before you call moving_average_normalization."
        )

    def parameter_count(self) -> int:
        """Returns the number of free parameters: those of direction and scale."""
        return int(self.direction.size + self.scale.size)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "MovingAverages are no array; in the loss call apply_in_loss(raw, *inputs), and in "
            "evaluation and export apply(jaxnorm.effective(raw), *inputs)."
        )

    __jax_array__ = __array__


def _product(direction: Values, factor: Values) -> Values:
    """Returns the direction times a factor, in its own type."""
    return (promote(direction) * factor).astype(direction.dtype)


@jax.custom_jvp
def _differentiated(direction: Values, factor: Values) -> Values:
    """Returns `_product`, and warns where it is differentiated."""
    return _product(direction, factor)


@_differentiated.defjvp
def _warned(primals: tuple[Values, Values], tangents: tuple[Values, Values]) -> Any:
    warn(
        "effective(raw) of MovingAverages is differentiated: the averages learn nothing from it, "
        "and a training may end in NaN. In the loss call apply_in_loss(raw, *inputs); a penalty on "
        "effective(raw) beside it is fine."
    )
    return jax.jvp(_product, primals, tangents)


class Sums(NamedTuple):
    """Axes and groups over which the statistics of a product are summed.

    Attributes:
        places: the axes of the product that count units, in the kernel's order.
        rows: the axis that counts rows, and is split into groups; None for one group.
        groups: the number of groups.
        has_mean: whether the mean is taken out, which the layer's bias gives back.
        path: the kernel's path, for messages.
    """

    places: tuple[int, ...]
    rows: int | None
    groups: int
    has_mean: bool
    path: str

    def split(self, y: Values) -> Values:
        """Splits the axis of rows into groups and the rows of each."""
        if self.rows is None:
            return y[None]
        shape = list(y.shape)
        shape[self.rows : self.rows + 1] = [self.groups, shape[self.rows] // self.groups]
        return y.reshape(shape)

    @property
    def group_axis(self) -> int:
        """Axis of the groups after `split`."""
        return self.rows or 0

    def axes(self, split: Any) -> tuple[int, ...]:
        """Returns the axes of rows and positions after `split`, over which statistics go."""
        units = [place + (place >= self.group_axis) for place in self.places]
        return tuple(i for i in range(split.ndim) if i not in (*units, self.group_axis))

    def along(self, values: Values, y: Values) -> Values:
        """Returns values of the units in the shape that meets a product after `split`."""
        shape = [1] * (y.ndim + 1)
        for place in self.places:
            shape[place + (place >= self.group_axis)] = y.shape[place]
        return values.reshape(shape)


def normalized_backward(
    call: KernelCall, node: MovingAverages, groups: int, has_mean: bool
) -> Values:
    """Returns a product of the effective kernel, with batch normalization's backward pass.

    The gradient δ of the product goes on without the part that moves mean and variance of a unit
    in its group, δ - mean(δ) - ŷ mean(δ ŷ), where ŷ is standardized by the group. Without
    ``has_mean`` it is the part that moves the mean square, and ŷ is not centered. The gradient of
    the scale is its own; those of the averages carry the sums of V x about the old average.
    """
    rows = call.sample_axis if groups > 1 else None
    leaves = node.scale, node.stored_mean, node.stored_variance, node.count
    statistics = [call.of_layer(x, node.direction) for x in leaves]
    sums = Sums(tuple(sorted(call.unit_axes)), rows, groups, has_mean, str(call.path))
    return _normalized(sums, *vary_alike(call.output, *statistics))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalized(
    sums: Sums, y: Values, scale: Values, mean: Values, variance: Values, count: Values
) -> Values:
    """Returns ``y``."""
    del sums, scale, mean, variance, count
    return y


def _forward(sums: Sums, y: Values, *statistics: Values) -> tuple[Values, Any]:
    split = jax.eval_shape(sums.split, y)
    values = math.prod(split.shape[axis] for axis in sums.axes(split))
    if values < LEAST_VALUES:
        raise ValueError(
            f"each group has {values} values of a unit of the kernel {sums.path!r}; wanted "
            f"{LEAST_VALUES} or more, because without what moves the mean and the variance of two "
            "values nothing is left of a gradient. Pass more rows per step, or fewer groups; or "
            "train with normalizer_free, whose gradient is that of single rows."
        )
    return y, (y, *statistics)


def _backward(sums: Sums, saved: Any, delta: Values) -> tuple[Values, ...]:
    y, scale, *stored, count = saved
    mean, variance = (promote(x) / TINY for x in stored)
    factor = promote(scale) / deviation(variance)
    d = sums.split(promote(delta))
    z = sums.split(promote(y)) - sums.along(factor * mean, y)
    axes = sums.axes(z)
    # Four sums of two arrays, which compilers read once.
    d_mean, z_mean = (int(sums.has_mean) * x.mean(axes, keepdims=True) for x in (d, z))
    square, moment = (z * z).mean(axes, keepdims=True), (d * z).mean(axes, keepdims=True)
    z_var = jnp.maximum(square - z_mean**2, 0) + sums.along(EPSILON * factor**2, y)
    slope = quotient(moment - d_mean * z_mean, z_var)
    kept = d - d_mean - (z - z_mean) * slope

    def total(of_groups: Values) -> Values:
        """Returns sums over all values, from means of groups."""
        values = d.size // of_groups.size
        return values * of_groups.sum(sums.group_axis).reshape(scale.shape)

    back = quotient(jnp.ones_like(factor), factor)  # 0 where the scale is 0
    of_scale = quotient(total(moment), promote(scale))
    of_count = jnp.where(factor == 0, 0, TINY * total(jnp.ones_like(z_mean)))
    return (
        kept.reshape(y.shape).astype(y.dtype),
        of_scale.astype(scale.dtype),
        (TINY * back * total(z_mean)).astype(stored[0].dtype),
        (TINY * back**2 * total(square)).astype(stored[1].dtype),
        of_count.astype(count.dtype),
    )


_normalized.defvjp(_forward, _backward)


def moved(node: MovingAverages, gradient: MovingAverages, decay: float) -> MovingAverages:
    """Returns the node with averages that moved towards the statistics of a step.

    A unit that the step did not measure keeps its averages, and one whose sums are not finite too.
    """
    n = gradient.count
    first, second = quotient(gradient.stored_mean, n), quotient(gradient.stored_variance, n)
    variance = jnp.maximum(second - first**2, 0)
    is_measured = (n != 0) & jnp.isfinite(first) & jnp.isfinite(variance)
    return node.with_averages(
        jnp.where(is_measured, node.mean + (1 - decay) * first, node.mean),
        jnp.where(is_measured, decay * node.variance + (1 - decay) * variance, node.variance),
    )
