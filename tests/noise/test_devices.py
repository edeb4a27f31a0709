"""The same draws on any devices, under jit, shard_map and pmap, and nothing is sent for them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxnorm import with_scale_noise
from tests.devices import collectives, mesh
from tests.noise.test_with_scale_noise import draw
from tests.tolerances import FLOAT32

ROWS = 16
X = draw(0, ROWS, 3)
PARAMS = {"first": {"kernel": draw(1, 3, 4)}, "second": {"kernel": draw(2, 4, 2)}}


def apply(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["first"]["kernel"]) @ params["second"]["kernel"]


noisy = with_scale_noise(apply, 0.5)


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    return np.asarray(noisy(jax.random.key(1), PARAMS, X))


def sharded(devices: int) -> Any:
    over = mesh(devices)
    rows = NamedSharding(over, P("data"))
    return over, jax.device_put(X, rows), jax.random.split(jax.random.key(1), ROWS)


@pytest.mark.parametrize("devices", [2, 8])
def test_jit(devices: int, wanted: np.ndarray) -> None:
    over, x, _ = sharded(devices)

    def run(params: Any, x: Any) -> Any:
        return jax.lax.with_sharding_constraint(
            noisy(jax.random.key(1), params, x), NamedSharding(over, P("data"))
        )

    np.testing.assert_allclose(jax.jit(run)(PARAMS, x), wanted, **FLOAT32)
    assert collectives(run, PARAMS, x) == []


@pytest.mark.parametrize("devices", [2, 8])
def test_shard_map(devices: int, wanted: np.ndarray) -> None:
    over, x, keys = sharded(devices)
    spec = P("data")
    run = jax.shard_map(noisy, mesh=over, in_specs=(spec, P(), spec), out_specs=spec)
    np.testing.assert_allclose(jax.jit(run)(keys, PARAMS, x), wanted, **FLOAT32)
    assert collectives(run, jax.device_put(keys, NamedSharding(over, spec)), PARAMS, x) == []


def test_pmap(wanted: np.ndarray) -> None:
    keys = jax.random.split(jax.random.key(1), ROWS).reshape(2, -1)
    got = jax.pmap(noisy, in_axes=(0, None, 0))(keys, PARAMS, X.reshape(2, -1, 3))
    np.testing.assert_allclose(np.asarray(got).reshape(ROWS, -1), wanted, **FLOAT32)
