"""Wrong arguments of the library: radii, deviations, seeds, settings, layers, expressions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxnorm
from jaxnorm import Moments, Scaled, gamma_decay, merge_moments, nnx, project
from jaxnorm._checks import check_seed
from jaxnorm.theory import lcw, vcl
from tests.wrong import Walk, Wrong

KERNEL = jnp.ones((4, 3))
PARAMS = {"dense": {"kernel": KERNEL, "bias": jnp.ones(3)}}
RAW = {"dense": Scaled(KERNEL, jnp.ones(3), (-2,))}
NAN, INF = float("nan"), float("inf")

#: Radii that no sphere has, and deviations that no noise has, of every scalar type.
NUMBERS = (
    *(NAN, INF, -1.0, np.float32(-1), np.float64(NAN), np.float16(INF)),
    *(jnp.float32(-1), jnp.bfloat16(NAN), "2", True, 1j),
)
SEEDS = (-1, 2**32, 1.7, np.int64(2**40), np.float32(1), np.int64(-1), "1", True, None)


def call(
    function: Callable[..., object], *values: Any, named: str, error: type[Exception] = ValueError
) -> Wrong:
    return Wrong(lambda at: function(*values), tuple(named.split("|")), error)


def error_of(value: Any) -> type[Exception]:
    """Of a wrong type a TypeError, of a wrong value a ValueError."""
    return TypeError if isinstance(value, (str, bool, complex)) else ValueError


def shown(value: Any) -> str:
    """A value as a message shows it."""
    return repr(value) if error_of(value) is TypeError else str(np.asarray(value).item())


def noisy(stddev: Any) -> object:
    return jaxnorm.noise_injection(optax.sgd(0.1), stddev, seed=0).init(RAW)


def projected(radius: Any) -> object:
    return project(PARAMS, squared_radius=radius)


def moments(units: int) -> Moments:
    return Moments(jnp.zeros(units), jnp.ones(units), jnp.float32(4))


LIBRARY: Walk = {
    **{
        f"a squared radius of {value!r}": call(
            projected,
            value,
            named=f"squared_radius is {shown(value)}|'dense/kernel'",
            error=error_of(value),
        )
        for value in (0, *NUMBERS)
    },
    **{
        f"a stddev of {value!r}": call(
            noisy, value, named=f"stddev is {shown(value)}; ", error=error_of(value)
        )
        for value in NUMBERS
    },
    **{
        f"a seed of {seed!r}": call(check_seed, seed, named=f"seed is {seed!r}; |4294967295")
        for seed in SEEDS
    },
    "a radius of each unit": call(
        jaxnorm.project_to_sphere, KERNEL, 0, jnp.array([1.0, -2.0, 3]), named="-2.0 in an array"
    ),
    "a strength of NaN": call(
        gamma_decay, PARAMS["dense"], np.float32(NAN), named="strengths is nan"
    ),
    "a strength of text": call(
        gamma_decay,
        PARAMS["dense"],
        {"kernel": None, "bias": "1"},
        named="strengths is '1'|'bias'",
        error=TypeError,
    ),
    **{
        f"a momentum of {value}": call(
            lambda value: nnx.BatchNorm(3, momentum=value), value, named=f"momentum is {value}"
        )
        for value in (2.0, -0.1, NAN)
    },
    **{
        f"an epsilon of {value} in {layer.__name__}": call(
            lambda layer, value: layer(3, epsilon=value), layer, value, named=f"epsilon is {value}"
        )
        for layer in (nnx.BatchNorm, nnx.PopulationNorm, nnx.Standardization)
        for value in (-1.0, INF)
    },
    "moments of other units": call(merge_moments, moments(1), moments(5), named="(1,) and (5,)"),
    **{
        f"a bound for e = {value} in {bound.__name__}": call(
            bound, 3.0, 5, value, named=f"epsilon is {value}"
        )
        for bound in (vcl.variance_ratio_bound, vcl.batch_norm_stability_bound)
        for value in (0.0, 1.5)
    },
    "a gain for NaN": call(lcw.variance_gain, jax.nn.relu, NAN, named="stddev is nan"),
    "a gain for 0": call(lcw.variance_gain, jax.nn.relu, 0.0, named="stddev is 0.0"),
}
