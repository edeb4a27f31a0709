"""Batch renormalization against float64 NumPy, and against what its definition says of limits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from jaxnorm.nnx import BatchNorm, functionalize
from tests.devices import mesh
from tests.nnx.batch_norm_oracle import FULL, MEAN_ONLY, VARIANCE_ONLY, Kind, batch_norm
from tests.trees import assert_equal, quick_jit

WIDTH, ROWS, EPSILON, MOMENTUM = 4, 16, 1e-3, 0.8
FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


# Against the running statistics: nearly the same, a larger deviation, a larger mean, and both.
X = jnp.asarray(normal(0, ROWS, WIDTH) * [1, 9, 1, 0.1] + [0, 0, 8, -6], jnp.float32)
COTANGENT = jnp.asarray(normal(1, ROWS, WIDTH), jnp.float32)
SCALE, BIAS = (np.float32(normal(seed, WIDTH)) for seed in (2, 3))
MEAN, VARIANCE = np.asarray([0.1, 0, 0.5, 0]), np.asarray([1.2, 1, 0.8, 1])


def layer(kind: Kind = FULL, **options: Any) -> BatchNorm:
    made = BatchNorm(WIDTH, **kind._asdict(), epsilon=EPSILON, momentum=MOMENTUM, **options)
    made.scale[...], made.bias[...] = jnp.asarray(SCALE), jnp.asarray(BIAS)
    for kept, values in ((made.mean, MEAN), (made.var, VARIANCE)):
        if kept is not None:
            kept[...] = jnp.asarray(values, jnp.float32)
    return made


def trained(made: BatchNorm, x: Any = X, cotangent: Any = COTANGENT) -> Any:
    apply, params, state = functionalize(made)

    def loss(x: Any, params: Any) -> Any:
        output, after = apply(params, state, x, train=True)
        return (output * cotangent).sum(), (output, after)

    gradients, (output, after) = quick_jit(jax.grad(loss, (0, 1), has_aux=True))(x, params)
    return output, *gradients, after


def corrections(kind: Kind, limits: tuple[float, float], groups: int) -> tuple[Any, Any]:
    """r and d, one row a group, from their definitions."""
    parts = np.float64(X).reshape(groups, -1, WIDTH)
    s = np.sqrt(VARIANCE + EPSILON) if kind.use_variance else np.ones(WIDTH)
    r = np.sqrt(parts.var(1) + EPSILON) / s if kind.use_variance else np.ones((groups, WIDTH))
    d = (parts.mean(1) - MEAN) / s if kind.use_mean else np.zeros((groups, WIDTH))
    return np.clip(r, 1 / limits[0], limits[0]), np.clip(d, -limits[1], limits[1])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [FULL, MEAN_ONLY, VARIANCE_ONLY], ids=["full", "mean", "variance"])
def test_the_formula_and_its_gradients(kind: Kind, groups: int) -> None:
    """gamma (x^ r + d) + beta, whose gradient is that of a normalization with the scale gamma r."""
    limits = (2.0, 1.5)
    output, by_x, by_params, after = trained(layer(kind, groups=groups, renormalize=limits))
    r, d = corrections(kind, limits, groups)
    for i, (x, cotangent) in enumerate(
        zip(*(np.split(np.float64(a), groups) for a in (X, COTANGENT)), strict=True)
    ):
        rows = slice(i * len(x), (i + 1) * len(x))
        scale = np.float64(SCALE) * r[i]
        wanted = batch_norm(x, scale, BIAS + SCALE * d[i], cotangent, kind, 1, EPSILON)
        np.testing.assert_allclose(output[rows], wanted.output, **FLOAT32)
        np.testing.assert_allclose(by_x[rows], wanted.by_x, **FLOAT32)
    x_hat = (np.float64(output) - np.float64(BIAS)) / np.float64(SCALE)
    np.testing.assert_allclose(by_params["scale"], (COTANGENT * x_hat).sum(0), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(by_params["bias"], np.float64(COTANGENT).sum(0), **FLOAT32)
    plain = trained(layer(kind, groups=groups))
    assert_equal(after, plain[-1])


def test_the_limits_are_reached_above_below_and_not_at_all() -> None:
    """Else the test before this one would not see them."""
    r, d = corrections(FULL, (2.0, 1.5), 1)
    assert {0.5, 2.0} <= set(r.ravel())
    assert {-1.5, 1.5} <= set(d.ravel())
    assert ((r > 0.5) & (r < 2) & (np.abs(d) < 1.5)).any()


def test_within_the_limits_it_is_what_evaluation_computes() -> None:
    output, by_x, *_ = trained(layer(renormalize=(1e3, 1e3)))
    np.testing.assert_allclose(output, layer()(X, use_running_average=True), rtol=2e-5, atol=2e-5)
    # The gradient is the batch's still: it goes through the batch's mean.
    assert np.abs(by_x.sum(0)).max() < 1e-3
    assert np.abs((np.asarray(COTANGENT) * SCALE).sum(0)).max() > 0.1


def test_one_and_zero_are_batch_normalization() -> None:
    for got, wanted in zip(trained(layer(renormalize=(1.0, 0.0))), trained(layer()), strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **FLOAT32), got, wanted)


def test_a_view_sets_the_limits() -> None:
    plain = layer()
    view = nnx.view(plain, renormalize=(2.0, 1.5))
    assert plain.renormalize is None
    wanted = layer(renormalize=(2.0, 1.5))(X)
    np.testing.assert_array_equal(view(X), wanted)


def test_several_batches_follow_the_statistics_before_each() -> None:
    made, mean, variance = layer(renormalize=(3.0, 5.0)), MEAN, VARIANCE
    for step in range(3):
        x = np.float64(X) * (1 + step)
        s_b, s = np.sqrt(x.var(0) + EPSILON), np.sqrt(variance + EPSILON)
        r, d = np.clip(s_b / s, 1 / 3, 3), np.clip((x.mean(0) - mean) / s, -5, 5)
        wanted = ((x - x.mean(0)) / s_b * r + d) * np.float64(SCALE) + np.float64(BIAS)
        np.testing.assert_allclose(made(X * (1 + step)), wanted, rtol=1e-5, atol=1e-5)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * x.mean(0)
        variance = MOMENTUM * variance + (1 - MOMENTUM) * x.var(0)


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_the_same_on_any_devices(devices: int) -> None:
    wanted = trained(layer(renormalize=(2.0, 1.5)))
    apply, params, state = functionalize(layer(renormalize=(2.0, 1.5), axis_name="data"))

    def local(x: Any, cotangent: Any) -> Any:
        def loss(x: Any) -> Any:
            output, after = apply(params, state, x, train=True)
            return jax.lax.psum((output * cotangent).sum(), "data"), (output, after)

        gradient, (output, after) = jax.grad(loss, has_aux=True)(x)
        return output, gradient, after

    with jax.set_mesh(mesh(devices)):
        rows = P("data")
        mapped = jax.shard_map(local, in_specs=(rows, rows), out_specs=(rows, rows, P()))
        output, by_x, after = quick_jit(mapped)(X, COTANGENT)
    for a, b in zip(
        jax.tree.leaves((output, by_x, after)),
        jax.tree.leaves((wanted[0], wanted[1], wanted[3])),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_what_are_no_limits_is_refused() -> None:
    for wrong in (3.0, (1.0, 2.0, 3.0)):
        with pytest.raises(TypeError, match=r"renormalize is .*; wanted \(r_max, d_max\)"):
            BatchNorm(3, renormalize=wrong)
    with pytest.raises(ValueError, match=r"r_max is 0.5 for renormalize; wanted .* at least 1"):
        BatchNorm(3, renormalize=(0.5, 1.0))
    with pytest.raises(ValueError, match=r"d_max is -1.0 for renormalize; wanted .* at least 0"):
        BatchNorm(3, renormalize=(2.0, -1.0))
