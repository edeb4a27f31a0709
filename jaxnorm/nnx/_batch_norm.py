"""Batch normalization, with its parts as switches."""

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._checks import FRACTION, NONNEGATIVE, check_number
from jaxnorm.nnx._statistics import Statistic, check_features, normalize, sample_axes
from jaxnorm.statistics import batch_moments

Values = Float[Array, "..."]

#: Of the mean and the variance, or of gamma and beta: what the layer has.
Pair = tuple[Values | None, Values | None]


class BatchNorm(nnx.Module):
    """gamma (x - mu_B) / sqrt(var_B + eps) + beta over the last axis, taken apart.

    ``use_mean`` and ``use_variance`` leave one half out (mean-only, variance-only). ``groups``
    makes ghost batches: so many contiguous parts of the batch, each normalized with statistics of
    its own, whatever the number of devices. Three switches are separate: what to normalize with
    (``use_running_average``, which ``model.train()`` and ``model.eval()`` set), whether the running
    statistics follow (``update_statistics``), and whether gamma and beta are trained
    (``train_affine``). ``nnx.view`` sets any of them for a whole model; the ``train`` of a
    functionalized model decides on the first one, whatever the view.

    The running statistics are exponential averages of the batches' (the groups' averaged) means and
    biased variances, old * momentum + new * (1 - momentum), from mean 0 and variance 1.

    A unit that is constant over the batch (or its group), as every unit of a single value is, has
    variance 0 and becomes beta, without a mean gamma x / sqrt(eps) + beta; with epsilon 0 it is
    divided by 1. An infinite or NaN value makes its own unit, in its own group, NaN. Running
    statistics do not follow a unit whose batch statistics are not finite: one broken batch spoils
    its own loss, which ``optax.apply_if_finite`` sees, and not every later evaluation.

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
    ghost batches.
    """

    #: The units' axis, under the name that it has in Flax's layer.
    axis = -1

    def __init__(
        self,
        num_features: int,
        *,
        use_mean: bool = True,
        use_variance: bool = True,
        groups: int = 1,
        axis_name: Hashable | None = None,
        use_running_average: bool = False,
        update_statistics: bool = True,
        train_affine: bool = True,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        """A layer with gamma = 1, beta = 0; ``rngs`` is accepted as other layers do, and unused."""
        del rngs
        if not (use_mean or use_variance):
            raise ValueError(
                "got use_mean=False and use_variance=False, which normalizes nothing; wanted one "
                "of them, or jaxnorm.nnx.ScaleAndBias for the affine part alone."
            )
        check_number(momentum, FRACTION, "momentum", "0.9 for example")
        check_number(epsilon, NONNEGATIVE, "epsilon", "1e-5 for example")
        self.num_features, self.groups, self.axis_name = num_features, groups, axis_name
        self.use_mean, self.use_variance = use_mean, use_variance
        self.use_running_average = use_running_average
        self.update_statistics, self.train_affine = update_statistics, train_affine
        self.momentum, self.epsilon = momentum, epsilon
        ones, zeros = (f(num_features, param_dtype) for f in (jnp.ones, jnp.zeros))
        self.scale = nnx.Param(ones) if use_scale else None
        self.bias = nnx.Param(zeros) if use_bias else None
        self.mean = Statistic(jnp.zeros(num_features)) if use_mean else None
        self.var = Statistic(jnp.ones(num_features)) if use_variance else None

    def set_view(
        self,
        use_running_average: bool | None = None,
        update_statistics: bool | None = None,
        train_affine: bool | None = None,
    ) -> None:
        """What ``nnx.view`` may change: the three switches."""
        if use_running_average is not None:
            self.use_running_average = use_running_average
        if update_statistics is not None:
            self.update_statistics = update_statistics
        if train_affine is not None:
            self.train_affine = train_affine

    def __call__(self, x: Values, use_running_average: bool | None = None) -> Values:
        """Normalizes ``x``, (batch, ..., features), in its own type."""
        check_features(x, self.num_features)
        running = self.use_running_average if use_running_average is None else use_running_average
        groups = 1 if running else self.groups
        mean, variance = self._running() if running else self._batch(x)
        affine = self._affine()
        return normalize(x, mean, variance, self.epsilon, *affine, groups).astype(x.dtype)

    def _batch(self, x: Values) -> Pair:
        """The batch's statistics that are used, which the running ones follow."""
        moments = batch_moments(x, sample_axes(x), axis_name=self.axis_name, groups=self.groups)
        if self.update_statistics:
            for kept, new in ((self.mean, moments.mean), (self.var, moments.variance)):
                if kept is not None:
                    self._follow(kept, new if self.groups == 1 else new.mean(0))
        mean = moments.mean if self.use_mean else None
        variance = moments.variance if self.use_variance else None
        return mean, variance

    def _follow(self, kept: Statistic, new: Values) -> None:
        old = kept[...]
        new = jax.lax.stop_gradient(new).astype(old.dtype)
        followed = self.momentum * old + (1 - self.momentum) * new
        kept[...] = jnp.where(jnp.isfinite(new), followed, old)

    def _running(self) -> Pair:
        return _value(self.mean), _value(self.var)

    def _affine(self) -> Pair:
        values = _value(self.scale), _value(self.bias)
        return values if self.train_affine else jax.lax.stop_gradient(values)


def _value(variable: nnx.Variable[Any] | None) -> Values | None:
    return None if variable is None else variable[...]
