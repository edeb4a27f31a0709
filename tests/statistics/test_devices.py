"""However the batch is spread over devices, the statistics are the same, at a known price."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm.statistics import Moments, batch_moments
from tests.devices import BOTH, DEVICES, collectives, mesh

SAMPLES, OFFSET = 320, 1000.0
X = jnp.asarray(
    np.random.default_rng(0).normal(size=(SAMPLES, 3))
    + np.linspace(0, 5, SAMPLES)[:, None]
    + OFFSET,
    jnp.float32,
)


def wanted(groups: int) -> tuple[Any, Any]:
    parts = np.asarray(X, np.float64).reshape(groups, -1, 3)
    return parts.mean(1), parts.var(1)


def assert_pooled(got: Moments) -> None:
    for value, exact in zip(got[:2], wanted(1), strict=True):
        np.testing.assert_allclose(np.asarray(value).reshape(-1, 3)[:1], exact, rtol=3e-6)
    assert np.asarray(got.size).ravel()[0] == SAMPLES


def assert_groups(got: Any, groups: int) -> None:
    for value, exact in zip(got[:2], wanted(groups), strict=True):
        np.testing.assert_allclose(np.asarray(value).reshape(groups, 3), exact, rtol=1e-5)


@BOTH
@DEVICES
def test_a_sharded_batch_under_jit(devices: int, axis_type: AxisType) -> None:
    with jax.set_mesh(mesh(devices, axis_type)):
        x = jax.device_put(X, P("data"))
        assert_pooled(jax.jit(lambda x: batch_moments(x, 0))(x))
        assert_groups(jax.jit(lambda x: batch_moments(x, 0, groups=8))(x), 8)
        assert collectives(lambda x: batch_moments(x, 0, groups=8), x) == []
        price = collectives(lambda x: batch_moments(x, 0), x)
    if devices > 1:
        assert set(price) == {"all-reduce"}
        assert len(price) <= 2


@DEVICES
def test_shard_map_pools_with_one_all_reduce(devices: int) -> None:
    def pooled(x: jax.Array) -> Any:
        return batch_moments(x, 0, axis_name="data")

    with jax.set_mesh(mesh(devices, AxisType.Auto)):
        mapped = jax.shard_map(pooled, in_specs=P("data"), out_specs=P())
        assert_pooled(jax.jit(mapped)(X))
        if devices > 1:
            assert collectives(mapped, X) == ["all-reduce"]


@pytest.mark.parametrize("axis_name", [("rows", "columns"), "rows"])
def test_two_mapped_axes(axis_name: Any) -> None:
    def pooled(x: jax.Array) -> Any:
        return batch_moments(x, 0, axis_name=axis_name)[:2]

    over = jax.make_mesh((2, 4), ("rows", "columns"), axis_types=(AxisType.Auto,) * 2)
    outside = P() if isinstance(axis_name, tuple) else P(("columns",))
    mapped = jax.shard_map(pooled, mesh=over, in_specs=P(("rows", "columns")), out_specs=outside)
    mean, variance = jax.jit(mapped)(X)
    pooled_devices = 8 if isinstance(axis_name, tuple) else 2
    # Device (r, c) holds the rows of number 4 r + c; those of one c are pooled over r.
    parts = np.asarray(X, np.float64).reshape(2, 4, -1, 3).swapaxes(0, 1)
    exact = parts.reshape(8 // pooled_devices, -1, 3)
    np.testing.assert_allclose(np.asarray(mean).reshape(-1, 3), exact.mean(1), rtol=2e-6)
    np.testing.assert_allclose(np.asarray(variance).reshape(-1, 3), exact.var(1), rtol=1e-5)


@DEVICES
def test_pmap_pools_or_keeps_to_itself(devices: int) -> None:
    x = X.reshape(devices, -1, 3)
    over = jax.devices()[:devices]
    mapped = jax.pmap(lambda x: batch_moments(x, 0, axis_name="data"), "data", devices=over)
    assert_pooled(mapped(x))
    own = jax.pmap(lambda x: batch_moments(x, 0)[:2], "data", devices=over)(x)
    assert_groups(own, devices)


def test_the_gradient_is_the_same_pooled_or_whole() -> None:
    def score(moments: Moments) -> jax.Array:
        return (moments.mean * moments.variance).sum()

    whole = jax.jit(jax.grad(lambda x: score(batch_moments(x, 0))))(X)
    with jax.set_mesh(mesh(8, AxisType.Auto)):
        mapped = jax.shard_map(
            lambda x: score(batch_moments(x, 0, axis_name="data")),
            in_specs=P("data"),
            out_specs=P(),
        )
        got = jax.jit(jax.grad(mapped))(X)
    # 2 mean (x - mean) / 320: a mean of 1000 is right to its last place, however it is compiled.
    last_place = float(np.spacing(np.float32(OFFSET)))
    np.testing.assert_allclose(got, whole, rtol=1e-4, atol=2 * OFFSET / SAMPLES * last_place)


def test_groups_that_straddle_devices_are_an_error_with_explicit_axes() -> None:
    with jax.set_mesh(mesh(8, AxisType.Explicit)):
        x = jax.device_put(X, P("data"))
        with pytest.raises(Exception, match="reshape is not supported"):
            jax.jit(lambda x: batch_moments(x, 0, groups=4))(x)
