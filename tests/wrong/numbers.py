"""Numbers that no radius, deviation or seed can be, of every scalar type."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxnorm
from jaxnorm import Scaled, project, sphere_projection
from jaxnorm._checks import check_seed
from tests.wrong.entry import Walk, Wrong

PARAMS = {"dense": {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)}}
EXAMPLE = "the paper's c = 2 for example"
NAN, INF = float("nan"), float("inf")


def ignoring(call: Callable[[], object]) -> Callable[[Path], object]:
    return lambda at: call()


def kind_of(value: Any) -> type[Exception]:
    """Of a wrong type a TypeError, of a wrong value a ValueError."""
    return TypeError if isinstance(value, (str, bool, complex, list)) else ValueError


def number(value: Any) -> str:
    """A value as a message shows it."""
    return repr(value) if kind_of(value) is TypeError else str(np.asarray(value).item())


#: Radii that no sphere has, and deviations that no noise has.
NUMBERS = (
    NAN,
    INF,
    -1.0,
    np.float32(-1),
    np.float64(NAN),
    np.float16(INF),
    jnp.float32(-1),
    jnp.bfloat16(NAN),
    "2",
    True,
    1j,
)

RADII: Walk = {
    **{
        f"a squared radius of {value!r}": Wrong(
            lambda at, value=value: project(PARAMS, squared_radius=value),
            f"squared_radius is {number(value)} for the parameter 'dense/kernel'",
            "wanted a positive number",
            EXAMPLE,
            kind_of(value),
        )
        for value in (0, *NUMBERS)
    },
    "a radius of None": Wrong(
        ignoring(lambda: project(PARAMS, squared_radius=None)),
        "squared_radius is None for the parameter 'dense/kernel'",
        "wanted a positive number",
        EXAMPLE,
        ValueError,
    ),
    "a radius of each unit": Wrong(
        ignoring(lambda: jaxnorm.project_to_sphere(jnp.ones((4, 3)), 0, jnp.array([1.0, -2.0, 3]))),
        "squared_radius is -2.0 in an array for the weights array",
        "wanted a positive number",
        EXAMPLE,
        ValueError,
    ),
    "a tree of radii": Wrong(
        ignoring(lambda: sphere_projection(squared_radius={"dense": np.float32(NAN)}).init(PARAMS)),
        "squared_radius is nan for the parameter 'dense/kernel'",
        "wanted a positive number",
        EXAMPLE,
        ValueError,
    ),
    "a radius to measure against": Wrong(
        ignoring(lambda: jaxnorm.constraint_drift(PARAMS, squared_radius=np.float64(-2))),
        "squared_radius is -2.0 for the parameter 'dense/kernel'",
        "wanted a positive number",
        EXAMPLE,
        ValueError,
    ),
}

RAW = {"dense": Scaled(jnp.ones((4, 3)), jnp.ones(3), (-2,))}

DEVIATIONS: Walk = {
    f"a stddev of {value!r}": Wrong(
        lambda at, value=value: jaxnorm.noise_injection(optax.sgd(0.1), value, seed=0).init(RAW),
        f"stddev is {number(value)}; ",
        "wanted a number of at least 0",
        "or a tree of them",
        kind_of(value),
    )
    for value in NUMBERS
} | {
    "a tree of deviations": Wrong(
        ignoring(
            lambda: jaxnorm.perturb_scales(RAW, {"dense": np.float32(NAN)}, jax.random.key(0))
        ),
        "stddev is nan; ",
        "wanted a number of at least 0",
        "or a tree of them: mend that of 'dense'",
        ValueError,
    )
}

SEEDS: Walk = {
    f"a seed of {seed!r}": Wrong(
        lambda at, seed=seed: check_seed(seed),
        f"seed is {seed!r}; ",
        "wanted an integer from 0 to 4294967295",
        "seed % 2**32 makes one",
        ValueError,
    )
    for seed in (-1, 2**32, 1.7, np.int64(2**40), np.float32(1), np.int64(-1), "1", True, None)
}

NUMBERS_WALK: Walk = RADII | DEVIATIONS | SEEDS
