"""Wrong arguments of the library: settings, layers, expressions, functions."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxnorm import losses, nnx, statistics
from jaxnorm.theory import lcw, vcl
from tests.wrong.entry import Walk, Wrong
from tests.wrong.numbers import INF, NAN, PARAMS, ignoring

ONES = jnp.ones((8, 3))


def moments(units: int) -> statistics.Moments:
    return statistics.Moments(jnp.zeros(units), jnp.ones(units), jnp.float32(4))


ARGUMENTS: Walk = {
    "a strength of NaN": Wrong(
        ignoring(lambda: losses.gamma_decay(PARAMS["dense"], np.float32(NAN))),
        "strengths is nan",
        "wanted a finite number",
        "or a tree of them",
        ValueError,
    ),
    "a strength of text": Wrong(
        ignoring(lambda: losses.gamma_decay(PARAMS["dense"], {"kernel": None, "bias": "1"})),
        "strengths is '1'",
        "wanted a finite number",
        "mend that of 'bias'",
        TypeError,
    ),
    **{
        f"a momentum of {value}": Wrong(
            lambda at, value=value: nnx.BatchNorm(3, momentum=value),
            f"momentum is {value}",
            "wanted a number from 0 to 1",
            "0.9 for example",
            ValueError,
        )
        for value in (2.0, -0.1, NAN)
    },
    **{
        f"an epsilon of {value} in {layer.__name__}": Wrong(
            lambda at, value=value, layer=layer: layer(3, epsilon=value),
            f"epsilon is {value}",
            "wanted a number of at least 0",
            "1e-5 for example",
            ValueError,
        )
        for layer in (nnx.BatchNorm, nnx.PopulationNorm, nnx.Standardization)
        for value in (-1.0, INF)
    },
    "moments of other units": Wrong(
        ignoring(lambda: statistics.merge_moments(moments(1), moments(5))),
        "moments of units of shape (1,) and (5,)",
        "wanted the same units",
        "take them of the same layer",
        ValueError,
    ),
    **{
        f"a bound for e = {value}": Wrong(
            lambda at, value=value, bound=bound: bound(3.0, 5, value),
            f"epsilon is {value}",
            "wanted a number between 0 and 1",
            "0.5 for example",
            ValueError,
        )
        for bound in (vcl.variance_ratio_bound, vcl.batch_norm_stability_bound)
        for value in (0.0, 1.5)
    },
    "a gain for NaN": Wrong(
        ignoring(lambda: lcw.variance_gain(jax.nn.relu, NAN)),
        "stddev is nan",
        "wanted a positive number",
        "1.0 for example",
        ValueError,
    ),
}
