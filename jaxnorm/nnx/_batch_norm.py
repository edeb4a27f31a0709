"""Batch normalization with each of its parts as an option, and population normalization."""

import functools
import operator
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._checks import FRACTION, NONNEGATIVE, check_number
from jaxnorm._statistics import Moments, batch_moments, broadcast_mask, independent_positions
from jaxnorm.nnx._normalize import (
    Pair,
    check_features,
    normalize,
)

Values = Float[Array, "..."]

#: ``(key, shape, dtype) -> array``.
Initializer = Callable[..., Any]


class BatchNorm(nnx.Module):
    """gamma (x - mu_B) / sqrt(var_B + eps) + beta per unit, with each part as an option.

    The layer takes the place of ``nnx.BatchNorm``: arguments of the same name mean the same
    (``momentum`` is 0.9 here, 0.99 there). Beyond Flax's it has ``use_mean``, ``use_variance``
    and ``groups``.

    With ``use_running_average`` the layer normalizes by its running statistics, and these stay as
    they are; otherwise it normalizes by the batch's, and the running ones follow. ``model.train()``
    and ``model.eval()`` set it for a whole model. A layer that is frozen by
    ``use_running_average=True`` also stays frozen in `functionalize`. To freeze gamma and beta,
    leave them out of the optimizer (``optax.masked``).

    The running statistics are exponential averages of the batches' (the groups' averaged) means and
    biased variances, old * momentum + new * (1 - momentum), from mean 0 and variance 1.

    A unit that is constant over the batch (or its group), as every unit of a single value is, has
    variance 0 and becomes beta, without a mean gamma x / sqrt(eps) + beta; with epsilon 0 it is
    divided by 1. An infinite or NaN value, or a variance that overflows, makes its own unit, in its
    own group, NaN. The running statistics do not follow a unit whose batch statistics are not
    finite: one broken batch spoils its own loss, which ``optax.apply_if_finite`` sees, and no later
    evaluation.

    Under jit the batch is the whole batch, however it is sharded, at two all-reduces forward and
    one backward; with as many groups as devices the layer adds no operation to the step, since the
    running statistics travel with the gradients. Under pmap and shard_map the batch is the device's
    own, or with ``axis_name`` that of all devices together, at one all-reduce forward and one
    backward. Without ``axis_name`` each device has its own running statistics; their mean over
    devices, which the caller takes, is what ``groups`` gives under jit.

    Args:
        num_features: the number of units, the size of ``axis``.
        use_mean: if False, nothing is subtracted (variance-only).
        use_variance: if False, nothing is divided (mean-only).
        groups: the number of contiguous parts of the batch (ghost batches), each normalized with
            its own statistics, whatever the number of devices.
        axis: the axis of the units.
        axis_name: under pmap or shard_map, the mapped axis (or axes) whose batches are pooled.
        use_running_average: True to normalize by the running statistics.
        momentum: the share of the old running statistics, from 0 to 1.
        epsilon: added to the variance.
        use_scale: if False, there is no gamma.
        use_bias: if False, there is no beta.
        scale_init: initializer of gamma.
        bias_init: initializer of beta.
        dtype: of the result; that of ``x`` if None.
        param_dtype: of gamma and beta. The statistics are float32 or wider.
        rngs: the random keys of initializers other than ones and zeros.

    Attributes:
        scale: gamma, or None.
        bias: beta, or None.
        mean: the running mean, an ``nnx.BatchStat``; None without ``use_mean``.
        var: the running variance, an ``nnx.BatchStat``; None without ``use_variance``.

    Raises:
        ValueError: for options out of range; in a call, for another number of units, and groups
            that do not divide the batch or meet ``axis_name``.
        TypeError: for a mask that is not of type bool.

    Example:
        >>> layer = BatchNorm(1, use_scale=False, use_bias=False, epsilon=0.0)
        >>> layer(jnp.array([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]

    Source: Ioffe and Szegedy 2015; Salimans and Kingma 2016 for mean-only, Hoffer et al. 2017 for
    ghost batches.
    """

    def __init__(
        self,
        num_features: int,
        *,
        use_mean: bool = True,
        use_variance: bool = True,
        groups: int = 1,
        axis: int = -1,
        axis_name: Hashable | None = None,
        use_running_average: bool = False,
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
        """Makes a layer with gamma = 1 and beta = 0, unless initializers are given."""
        check_number(momentum, FRACTION, "momentum", "0.9 for example")
        check_number(epsilon, NONNEGATIVE, "epsilon", "1e-5 for example")
        self.num_features, self.groups, self.axis_name = num_features, groups, axis_name
        self.axis, self.dtype = axis, dtype
        self.use_mean, self.use_variance = use_mean, use_variance
        self.use_running_average = use_running_average
        self.momentum, self.epsilon = momentum, epsilon
        shape = (num_features,)
        self.scale = _parameter(scale_init, rngs, shape, param_dtype) if use_scale else None
        self.bias = _parameter(bias_init, rngs, shape, param_dtype) if use_bias else None
        self.mean = nnx.BatchStat(jnp.zeros(shape)) if use_mean else None
        self.var = nnx.BatchStat(jnp.ones(shape)) if use_variance else None

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Sets what ``nnx.view`` may change.

        Args:
            use_running_average: True to normalize by the running statistics.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average

    def __call__(
        self, x: Values, use_running_average: bool | None = None, *, mask: Any = None
    ) -> Values:
        """Normalizes ``x`` along the units' axis, in its own type (or ``dtype``).

        Args:
            x: activations.
            use_running_average: overrides the layer's own option.
            mask: array of bool that broadcasts to ``x``, True for the values that count in the
                statistics; with groups and over devices each value counts alike. All values are
                normalized, except that infinite and NaN values outside the mask are replaced by 0.
                The running statistics do not follow a unit without any value in the mask.
        """
        check_features(x, self.num_features, self.axis)
        values = jnp.moveaxis(x, self.axis, -1)
        if mask is not None:
            mask = jnp.moveaxis(broadcast_mask(mask, x), self.axis, -1)
            # A product with NaN has a NaN gradient even if its cotangent is 0.
            values = jnp.where(mask | jnp.isfinite(values), values, 0)
        if use_running_average is None:
            use_running_average = self.use_running_average
        if use_running_average:
            normalized = normalize(values, *self._running(), self.epsilon, *self._affine())
        else:
            normalized = self._normalize_by_batch(values, mask)
        return jnp.moveaxis(normalized, -1, self.axis).astype(self.dtype or x.dtype)

    def _normalize_by_batch(self, x: Values, mask: Any) -> Values:
        """Normalizes by the statistics of ``x``, and updates the running ones."""
        moments = batch_moments(
            x, range(x.ndim - 1), axis_name=self.axis_name, groups=self.groups, where=mask
        )
        batch: Pair = (
            moments.mean if self.use_mean else None,
            moments.variance if self.use_variance else None,
        )
        if x.size:
            self._update_statistics(moments)
        return normalize(x, *batch, self.epsilon, *self._affine(), self.groups)

    def _update_statistics(self, moments: Moments) -> None:
        """Moves the running statistics of each unit whose new ones are all finite."""
        updates = []
        for statistic, values in ((self.mean, moments.mean), (self.var, moments.variance)):
            if statistic is not None:
                new = _group_average(values, moments.size, self.groups)
                new = jax.lax.stop_gradient(new).astype(statistic[...].dtype)
                updates.append((statistic, new))
        finite = functools.reduce(operator.and_, [jnp.isfinite(new) for _, new in updates])
        for statistic, new in updates:
            old = statistic[...]
            moved = self.momentum * old + (1 - self.momentum) * new
            statistic[...] = jnp.where(finite, moved, old)

    def _running(self) -> Pair:
        return _read(self.mean), _read(self.var)

    def _affine(self) -> Pair:
        return _read(self.scale), _read(self.bias)


class Standardization(BatchNorm):
    """(a - mu_B) / sqrt(var_B + eps), batch normalization of activations without parameters.

    Placed after an activation, the layer makes the inputs of the next layer zero-mean, and so
    removes the activation shift that batch normalization removes from the pre-activations.

    Args:
        num_features: the number of units, the size of the units' axis.
        **options: those of `BatchNorm`, except ``use_scale`` and ``use_bias``.

    Under jit, pmap and shard_map the batch is that of `BatchNorm`.

    Example:
        >>> Standardization(1, epsilon=0.0)(jnp.array([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]

    Source: Gulcehre and Bengio 2016; Kutsuna 2019, section 5.
    """

    def __init__(self, num_features: int, **options: Any):
        """Makes a layer without scale and bias."""
        super().__init__(num_features, use_scale=False, use_bias=False, **options)


class PopulationNorm(nnx.Module):
    """gamma (x - mu) / sqrt(var + eps) + beta with statistics that do not depend on the minibatch.

    mu and var are constants of a training step, without gradient: those of the last sample that
    passed the layer while ``refresh`` was set. To refresh them, run the model on a large sample
    (the paper: 10,000 rows) with ``refresh`` set: each layer then normalizes with that sample's own
    statistics and stores them. ``nnx.view(model, refresh=True)`` sets it for a whole model; the
    ``apply`` of that view, functionalized, is the refresh on the same state.

    A constant unit becomes beta. An infinite or NaN value in the refreshing sample, or a variance
    that overflows, makes its own unit NaN until the next refresh: the statistics before it are not
    those of this network.

    Under jit the sample is the whole batch, however it is sharded; under pmap and shard_map give
    ``axis_name``, or each device keeps its own statistics.

    Args:
        num_features: the number of units, the size of the last axis.
        axis_name: under pmap or shard_map, the mapped axis (or axes) whose samples are pooled.
        epsilon: added to the variance.
        use_scale: if False, there is no gamma.
        use_bias: if False, there is no beta.
        param_dtype: of gamma and beta.
        rngs: accepted as by other layers, and unused.

    Attributes:
        scale: gamma, or None.
        bias: beta, or None.
        mean: mu, an ``nnx.BatchStat``; 0 until the first refresh.
        var: an ``nnx.BatchStat``; 1 until the first refresh.
        positions: an ``nnx.BatchStat``; the number of independent values that the positions of one
            sample amount to, for the strength of gamma decay.

    Raises:
        ValueError: for an ``epsilon`` out of range, and in a call for another number of units.

    Example:
        >>> layer = PopulationNorm(1, epsilon=0.0)
        >>> layer.refresh = True
        >>> _ = layer(jnp.array([[1.0], [3.0]]))
        >>> layer.refresh = False
        >>> layer(jnp.array([[5.0]])).tolist()
        [[3.0]]

    Source: Luo et al. 2019, sections 2 and 5.
    """

    #: Options of `BatchNorm` that are fixed here.
    axis, dtype = -1, None

    def __init__(
        self,
        num_features: int,
        *,
        axis_name: Any = None,
        epsilon: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        """Makes a layer with gamma = 1 and beta = 0."""
        del rngs
        check_number(epsilon, NONNEGATIVE, "epsilon", "1e-5 for example")
        self.num_features, self.axis_name, self.epsilon = num_features, axis_name, epsilon
        self.refresh = False
        self.scale = nnx.Param(jnp.ones(num_features, param_dtype)) if use_scale else None
        self.bias = nnx.Param(jnp.zeros(num_features, param_dtype)) if use_bias else None
        self.mean = nnx.BatchStat(jnp.zeros(num_features))
        self.var = nnx.BatchStat(jnp.ones(num_features))
        self.positions = nnx.BatchStat(jnp.ones(num_features))

    def set_view(self, refresh: bool | None = None) -> None:
        """Sets what ``nnx.view`` may change.

        Args:
            refresh: True to take the statistics anew.
        """
        if refresh is not None:
            self.refresh = refresh

    def __call__(self, x: Values, *args: Any, **kwargs: Any) -> Values:
        """Normalizes ``x``, (batch, ..., units), in its own type; ignores further arguments."""
        del args, kwargs
        check_features(x, self.num_features)
        if self.refresh and x.size:
            moments = batch_moments(x, range(x.ndim - 1), axis_name=self.axis_name)
            positions = independent_positions(x, axis_name=self.axis_name)
            statistics = (self.mean, self.var, self.positions)
            for statistic, new in zip(statistics, (*moments[:2], positions), strict=True):
                statistic[...] = jax.lax.stop_gradient(new).astype(statistic[...].dtype)
        mean, variance = jax.lax.stop_gradient((self.mean[...], self.var[...]))
        affine = _read(self.scale), _read(self.bias)
        return normalize(x, mean, variance, self.epsilon, *affine).astype(x.dtype)


def _read(variable: nnx.Variable[Any] | None) -> Values | None:
    return None if variable is None else variable[...]


def _parameter(
    initializer: Initializer, rngs: nnx.Rngs | None, shape: tuple[int], dtype: Any
) -> nnx.Param[Any]:
    """Returns an initialized parameter; ones and zeros draw no key from ``rngs``."""
    is_constant = initializer in (nnx.initializers.ones, nnx.initializers.zeros)
    key = None if is_constant or rngs is None else rngs.params()
    return nnx.Param(initializer(key, shape, dtype))


def _group_average(values: Values, sizes: Values, groups: int) -> Values:
    """Average over the groups, by their sizes if masked; NaN for a unit without any value."""
    if sizes.ndim == 0:
        return values if groups == 1 else values.mean(0)
    values, sizes = (array.reshape(groups, -1) for array in (values, sizes))
    total = sizes.sum(0)
    return jnp.where(total > 0, (sizes * values).sum(0) / jnp.maximum(total, 1), jnp.nan)
