"""Population normalization: statistics of a large sample, refreshed on a schedule."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._checks import NONNEGATIVE, check_number
from jaxnorm._statistics import batch_moments, independent_positions
from jaxnorm.nnx._layer import Signature
from jaxnorm.nnx._statistics import Statistic, check_features, normalize, sample_axes

Values = Float[Array, "..."]


class PopulationNorm(nnx.Module):
    """gamma (x - mu) / sqrt(var + eps) + beta with statistics that do not depend on the minibatch.

    mu and var are constants of a training step, of no gradient: those of the last sample that went
    through the layer while ``refresh`` was set. To refresh them, run the model on a large sample
    (the paper: 10,000 rows) with ``refresh`` on: each layer then normalizes with that sample's own
    statistics and keeps them. ``nnx.view(model, refresh=True)`` sets it for a whole model;
    functionalized, that view's ``apply`` is the refresh, on the same state.

    Attributes:
        scale: gamma, or None.
        bias: beta, or None.
        mean: mu, a `Statistic`; 0 until the first refresh.
        var: a `Statistic`; 1 until the first refresh.
        positions: a `Statistic`; how many independent values a sample's positions amount to, which
            the strength of gamma decay asks for.

    A constant unit becomes beta. An infinite or NaN value in the refreshing sample, or a variance
    that overflows, makes its own unit NaN until the next refresh: the statistics before it are not
    those of this network.

    Under jit the sample is the whole batch, however it is sharded; under pmap and shard_map give
    ``axis_name``, or devices keep statistics of their own.

    Example:
        >>> layer = PopulationNorm(1, epsilon=0.0)
        >>> layer.refresh = True
        >>> _ = layer(jnp.array([[1.0], [3.0]]))
        >>> layer.refresh = False
        >>> layer(jnp.array([[5.0]])).tolist()
        [[3.0]]

    Source: Luo et al. 2019, sections 2 and 5.
    """

    #: The units' axis, under the name that it has in Flax's BatchNorm.
    axis = -1

    __signature__ = Signature()

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
        """A layer with gamma = 1, beta = 0; ``rngs`` is accepted as other layers do, and unused."""
        del rngs
        check_number(epsilon, NONNEGATIVE, "epsilon", "1e-5 for example")
        self.num_features, self.axis_name, self.epsilon = num_features, axis_name, epsilon
        self.refresh = False
        ones, zeros = (f(num_features, param_dtype) for f in (jnp.ones, jnp.zeros))
        self.scale = nnx.Param(ones) if use_scale else None
        self.bias = nnx.Param(zeros) if use_bias else None
        self.mean = Statistic(jnp.zeros(num_features))
        self.var = Statistic(jnp.ones(num_features))
        self.positions = Statistic(jnp.ones(num_features))

    def set_view(self, refresh: bool | None = None) -> None:
        """What ``nnx.view`` may change: whether statistics are taken anew."""
        if refresh is not None:
            self.refresh = refresh

    def __call__(self, x: Values, *args: Any, **kwargs: Any) -> Values:
        """Normalizes ``x``, (batch, ..., features), in its own type, whatever else is given."""
        del args, kwargs
        check_features(x, self.num_features)
        if self.refresh and x.size:
            moments = batch_moments(x, sample_axes(x), axis_name=self.axis_name)
            seen = (
                moments.mean,
                moments.variance,
                independent_positions(x, axis_name=self.axis_name),
            )
            for statistic, new in zip(self._statistics(), seen, strict=True):
                statistic[...] = jax.lax.stop_gradient(new).astype(statistic[...].dtype)
        mean, variance = jax.lax.stop_gradient((self.mean[...], self.var[...]))
        scale, bias = (None if p is None else p[...] for p in (self.scale, self.bias))
        return normalize(x, mean, variance, self.epsilon, scale, bias).astype(x.dtype)

    def _statistics(self) -> tuple[Statistic, Statistic, Statistic]:
        return self.mean, self.var, self.positions
