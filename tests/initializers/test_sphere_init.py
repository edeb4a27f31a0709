"""`sphere_init`: on the sphere, uniform on it, and usable wherever an initializer is."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import sphere_init
from tests import oracles
from tests.tolerances import BFLOAT16_DRIFT, DRIFT

# A mean of N draws strays by more than five standard errors once in two million.
DRAWS, STANDARD_ERRORS = 100_000, 5
# In few dimensions other laws are far from uniform (scaled points of a cube: 6 %).
FAN_IN, SQUARED_RADIUS = 3, 3.0


def run(init: Any, *arguments: Any) -> Any:
    """Compiles the initializer, which is faster than operation by operation."""
    return jax.jit(init, static_argnums=(1, 2))(*arguments)


def assert_on_sphere(kernel: Any, axes: Any, radius: float, centered: bool, drift: float) -> None:
    sums, norms = oracles.sums_and_squared_norms(kernel, axes)
    np.testing.assert_allclose(norms, radius, rtol=drift)
    if centered:
        np.testing.assert_allclose(sums, 0, atol=drift * np.sqrt(radius * sums.size))


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize(
    ("shape", "fan_in_axes", "axes"),
    [
        ((6, 4), None, (-2,)),
        ((3, 3, 2, 4), None, (-4, -3, -2)),
        ((8, 2, 3), 0, (-3,)),
        ((4, 3, 2), (-1, 1), (-2, -1)),
    ],
)
def test_units_are_on_the_sphere(
    key: Any, shape: Any, fan_in_axes: Any, axes: Any, centered: bool
) -> None:
    kernel = run(sphere_init(SQUARED_RADIUS, centered, fan_in_axes), key(), shape)
    assert (kernel.shape, kernel.dtype) == (shape, jnp.float32)
    assert_on_sphere(kernel, axes, SQUARED_RADIUS, centered, DRIFT)


@pytest.mark.parametrize(("dtype", "drift"), [("bfloat16", BFLOAT16_DRIFT), ("float64", 1e-14)])
def test_other_types(key: Any, dtype: str, drift: float) -> None:
    with jax.enable_x64(dtype == "float64"):
        kernel = run(sphere_init(), key(), (16, 4), jnp.dtype(dtype))
        assert kernel.dtype == dtype
        assert_on_sphere(kernel, (-2,), 2.0, True, drift)


@pytest.mark.parametrize("centered", [True, False])
def test_units_are_uniform_on_the_sphere(key: Any, centered: bool) -> None:
    """Mean 0, covariance c/d P (so c/m per coordinate), and higher moments of a uniform point.

    P is the projector onto d dimensions: d = m, or m - 1 and P = I - 11'/m if centered.
    Along a unit vector a of these, E (a'w)^4 = 3 c^2 / (d (d + 2)) and
    E (a'w)^6 = 15 c^3 / (d (d + 2) (d + 4)).
    """
    units = np.asarray(sphere_init(SQUARED_RADIUS, centered)(key(), (FAN_IN, DRAWS)), np.float64)
    average = np.full((FAN_IN, FAN_IN), 1 / FAN_IN)
    projector = np.eye(FAN_IN) - average if centered else np.eye(FAN_IN)
    d = FAN_IN - 1 if centered else FAN_IN
    fourth = 3 * SQUARED_RADIUS**2 / (d * (d + 2))
    sixth = 15 * SQUARED_RADIUS**3 / (d * (d + 2) * (d + 4))

    assert_mean(units, np.zeros(FAN_IN))
    products = (units[:, None] * units).reshape(FAN_IN**2, DRAWS)
    assert_mean(products, (SQUARED_RADIUS / d * projector).ravel())
    assert_mean(units**2, np.full(FAN_IN, SQUARED_RADIUS / FAN_IN))
    for direction in ([1, -1, 0], [2, -1, -1]) if centered else ([1, 0, 0], [1, 1, 1]):
        along = (np.asarray(direction) / np.linalg.norm(direction)) @ units
        assert_mean(np.stack([along**4, along**6]), np.asarray([fourth, sixth]))


def assert_mean(draws: Any, expected: Any) -> None:
    allowed = STANDARD_ERRORS * draws.std(1) / np.sqrt(DRAWS)
    assert (np.abs(draws.mean(1) - expected) <= allowed).all()


def test_keys_determine_the_draws(key: Any) -> None:
    first, second = (run(sphere_init(), key(), (4, 3)) for _ in range(2))
    assert (first != second).all()


def test_initializer_works_in_flax_models(key: Any) -> None:
    conv = nnx.Conv(
        4, 4, (3, 3), feature_group_count=2, kernel_init=sphere_init(), rngs=nnx.Rngs(0)
    )
    dense = nn.Dense(3, kernel_init=sphere_init()).init(key(), jnp.ones((2, 5)))
    assert_on_sphere(conv.kernel[...], (-4, -3, -2), 2.0, True, DRIFT)
    assert_on_sphere(dense["params"]["kernel"], (-2,), 2.0, True, DRIFT)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_sharded_kernel_has_the_same_numbers(key: Any, compiled: bool) -> None:
    mesh = jax.make_mesh((8,), ("units",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "units"))
    init = lambda key: sphere_init()(key, (6, 16), out_sharding=sharding)  # noqa: E731
    drawn_with = key()
    kernel = (jax.jit(init) if compiled else init)(drawn_with)
    assert kernel.sharding.is_equivalent_to(sharding, 2)
    np.testing.assert_allclose(kernel, sphere_init()(drawn_with, (6, 16)), rtol=DRIFT, atol=DRIFT)
