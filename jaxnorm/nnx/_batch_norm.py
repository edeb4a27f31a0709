"""Batch normalization, with its parts as switches."""

import functools
import operator
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._checks import FRACTION, NONNEGATIVE, check_number
from jaxnorm._statistics import Moments, batch_moments, broadcast_mask
from jaxnorm.nnx._layer import Initializer, Signature, initial
from jaxnorm.nnx._statistics import (
    Correction,
    Statistic,
    as_limits,
    check_features,
    correction,
    normalize,
    sample_axes,
    units_last,
)

Values = Float[Array, "..."]

#: Of the mean and the variance, or of gamma and beta: what the layer has.
Pair = tuple[Values | None, Values | None]


class BatchNorm(nnx.Module):
    """gamma (x - mu_B) / sqrt(var_B + eps) + beta for each unit of an axis, taken apart.

    ``use_mean`` and ``use_variance`` leave one half out (mean-only, variance-only). ``groups``
    makes ghost batches: so many contiguous parts of the batch, each normalized with statistics of
    its own, whatever the number of devices. Three switches are separate: what to normalize with
    (``use_running_average``, which ``model.train()`` and ``model.eval()`` set), whether the running
    statistics follow (``update_statistics``), and whether gamma and beta are trained
    (``train_affine``). ``nnx.view`` sets any of them for a whole model; the ``train`` of a
    functionalized model decides on the first one, whatever the view.

    It takes the place of ``nnx.BatchNorm``: ``axis``, ``dtype``, ``scale_init``, ``bias_init`` and
    the ``mask`` of a call are Flax's (``momentum`` is 0.9 here, 0.99 there). A mask leaves values
    out of the statistics, not out of what is normalized. Over devices, and groups, the values that
    are left in count one by one, however many each has; running statistics do not follow a unit
    that has none.

    ``renormalize=(r_max, d_max)`` is batch renormalization, for small batches or samples that
    depend on each other: gamma ((x - mu_B) / s_B * r + d) + beta, with r = s_B / s within
    [1 / r_max, r_max] and d = (mu_B - mu) / s within [-d_max, d_max], where mu and s are the
    running mean and deviation before this batch; no gradient goes through r and d. Within the
    limits it is what evaluation computes. The paper begins with (1, 0), batch normalization, and
    lets them grow to (3, 5): ``nnx.view(model, renormalize=(3.0, 5.0))``, which compiles anew.

    The running statistics are exponential averages of the batches' (the groups' averaged) means and
    biased variances, old * momentum + new * (1 - momentum), from mean 0 and variance 1.

    A unit that is constant over the batch (or its group), as every unit of a single value is, has
    variance 0 and becomes beta, without a mean gamma x / sqrt(eps) + beta; with epsilon 0 it is
    divided by 1. An infinite or NaN value, or a variance that overflows, makes its own unit, in its
    own group, NaN. Running statistics do not follow a unit whose batch statistics are not finite:
    one broken batch spoils its own loss, which ``optax.apply_if_finite`` sees, and not every later
    evaluation.

    Under jit the batch is the whole batch, however it is sharded, at two all-reduces forward and
    one backward; with as many groups as devices it adds no operation to the step, as the running
    statistics travel with the gradients. Under pmap and shard_map it is the device's own, or with
    ``axis_name`` all devices' together, at one all-reduce forward and one backward. On its own
    batch a device gets running statistics of its own; their mean over devices, for the caller to
    take, is what ``groups`` gives under jit.

    Attributes:
        scale: gamma, or None.
        bias: beta, or None.
        mean: the running mean, a `Statistic`; None without ``use_mean``.
        var: the running variance, a `Statistic`; None without ``use_variance``.

    Example:
        >>> layer = BatchNorm(1, use_scale=False, use_bias=False, epsilon=0.0)
        >>> layer(jnp.array([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]

    Source: Ioffe and Szegedy 2015; Salimans and Kingma 2016 for mean-only, Hoffer et al. 2017 for
    ghost batches, Ioffe 2017 for renormalization.
    """

    __signature__ = Signature()

    def __init__(
        self,
        num_features: int,
        *,
        use_mean: bool = True,
        use_variance: bool = True,
        groups: int = 1,
        renormalize: Any = None,
        axis: Any = -1,
        axis_name: Hashable | None = None,
        use_running_average: bool = False,
        update_statistics: bool = True,
        train_affine: bool = True,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        scale_init: Initializer = nnx.initializers.ones,
        bias_init: Initializer = nnx.initializers.zeros,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        """A layer with gamma = 1, beta = 0; other initializers ask for ``rngs``."""
        if not (use_mean or use_variance):
            raise ValueError(
                "got use_mean=False and use_variance=False, which normalizes nothing; wanted one "
                "of them, or jaxnorm.nnx.ScaleAndBias for the affine part alone."
            )
        check_number(momentum, FRACTION, "momentum", "0.9 for example")
        check_number(epsilon, NONNEGATIVE, "epsilon", "1e-5 for example")
        if not isinstance(axis, int):
            raise TypeError(f"axis is {axis!r}; wanted one axis, as an int: that of the units.")
        self.num_features, self.groups, self.axis_name = num_features, groups, axis_name
        self.axis, self.dtype, self.renormalize = axis, dtype, as_limits(renormalize)
        self.use_mean, self.use_variance = use_mean, use_variance
        self.use_running_average = use_running_average
        self.update_statistics, self.train_affine = update_statistics, train_affine
        self.momentum, self.epsilon = momentum, epsilon
        width, kind = num_features, param_dtype
        self.scale = initial(scale_init, rngs, width, kind) if use_scale else None
        self.bias = initial(bias_init, rngs, width, kind) if use_bias else None
        self.mean = Statistic(jnp.zeros(num_features)) if use_mean else None
        self.var = Statistic(jnp.ones(num_features)) if use_variance else None

    def set_view(
        self,
        use_running_average: bool | None = None,
        update_statistics: bool | None = None,
        train_affine: bool | None = None,
        renormalize: Any = None,
    ) -> None:
        """What ``nnx.view`` may change: the three switches, and the limits of renormalization."""
        given = {
            "renormalize": as_limits(renormalize),
            "use_running_average": use_running_average,
            "update_statistics": update_statistics,
            "train_affine": train_affine,
        }
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)

    def __call__(
        self, x: Values, use_running_average: bool | None = None, *, mask: Any = None
    ) -> Values:
        """Normalizes ``x``, its units on ``axis``, in its own type (or ``dtype``).

        Args:
            x: activations.
            use_running_average: overrides the layer's own switch.
            mask: truth values that broadcast to ``x``, True for the values that statistics count.
        """
        running = self.use_running_average if use_running_average is None else use_running_average
        check_features(x, self.num_features, self.axis)
        last = units_last(x, self.axis)
        if running:
            normalized = normalize(last, *self._running(), self.epsilon, *self._affine())
        else:
            kept = None if mask is None else units_last(broadcast_mask(mask, x), self.axis)
            normalized = self._trained(last, kept)
        restored = normalized if last is x else jnp.moveaxis(normalized, -1, self.axis)
        return restored.astype(self.dtype or x.dtype)

    def _trained(self, x: Values, mask: Any) -> Values:
        """Normalized with the batch's statistics, which the running ones follow."""
        moments = batch_moments(
            x, sample_axes(x), axis_name=self.axis_name, groups=self.groups, where=mask
        )
        batch = (
            moments.mean if self.use_mean else None,
            moments.variance if self.use_variance else None,
        )
        limits, steps = self.renormalize, Correction(None, None)
        if limits is not None:
            steps = correction(batch, self._running(), self.epsilon, limits)
        if self.update_statistics and x.size:
            self._follow(moments, masked=mask is not None)
        return normalize(x, *batch, self.epsilon, *self._affine(), self.groups, steps)

    def _follow(self, moments: Moments, masked: bool) -> None:
        """The running statistics follow those of the groups, averaged; of a unit both or none."""
        news = []
        for kept, values in ((self.mean, moments.mean), (self.var, moments.variance)):
            if kept is None:
                continue
            new = values if self.groups == 1 else values.mean(0)
            if masked:
                new = _by_size(values, moments.size, self.groups)
            news.append((kept, jax.lax.stop_gradient(new).astype(kept[...].dtype)))
        finite = functools.reduce(operator.and_, [jnp.isfinite(new) for _, new in news])
        for kept, new in news:
            old = kept[...]
            followed = self.momentum * old + (1 - self.momentum) * new
            kept[...] = jnp.where(finite, followed, old)

    def _running(self) -> Pair:
        return _value(self.mean), _value(self.var)

    def _affine(self) -> Pair:
        values = _value(self.scale), _value(self.bias)
        return values if self.train_affine else jax.lax.stop_gradient(values)


def _value(variable: nnx.Variable[Any] | None) -> Values | None:
    return None if variable is None else variable[...]


def _by_size(values: Values, sizes: Values, groups: int) -> Values:
    """The groups' average by their sizes; NaN for a unit of no values, which is not followed."""
    sizes = sizes if groups > 1 else sizes[None]
    values = values if groups > 1 else values[None]
    total = sizes.sum(0)
    return jnp.where(total > 0, (sizes * values).sum(0) / jnp.maximum(total, 1), jnp.nan)
