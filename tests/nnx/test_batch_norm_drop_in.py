"""What Flax's layer takes: the units' axis, masks, types and initializers, whatever the devices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from jaxnorm.nnx import BatchNorm, functionalize, replace_batch_norm
from tests.devices import mesh
from tests.nnx.batch_norm_oracle import FULL, batch_norm
from tests.trees import quick_jit

WIDTH, ROWS, EPSILON, MOMENTUM = 3, 24, 1e-3, 0.8
FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}
OPTIONS = {"epsilon": EPSILON, "momentum": MOMENTUM}


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


X = jnp.asarray(normal(0, ROWS, WIDTH) * [1, 2, 3] + np.linspace(0, 3, ROWS)[:, None], jnp.float32)
SCALE, BIAS = (np.float32(normal(seed, WIDTH)) for seed in (1, 2))
COTANGENT = np.float32(normal(3, ROWS, WIDTH))
#: Of eight devices with three rows each, some keep all, some a part, and three nothing.
KEPT = np.asarray([int(digit) for digit in "111111000000100011100000"], bool)


def with_parameters(layer: Any) -> Any:
    layer.scale[...], layer.bias[...] = jnp.asarray(SCALE), jnp.asarray(BIAS)
    return layer


def ours(**options: Any) -> BatchNorm:
    return with_parameters(BatchNorm(WIDTH, **OPTIONS, **options))


def flax(**options: Any) -> nnx.BatchNorm:
    layer = nnx.BatchNorm(WIDTH, **OPTIONS, use_fast_variance=False, rngs=nnx.Rngs(0), **options)
    return with_parameters(layer)


def trained(layer: Any, x: Any, cotangent: Any, mask: Any = None) -> Any:
    """The output, the gradient by the activations, and the new statistics."""
    apply, params, state = functionalize(layer)

    def loss(x: Any) -> Any:
        output, after = apply(params, state, x, train=True, mask=mask)
        return (output * jnp.asarray(cotangent)).sum(), (output, after)

    gradient, (output, after) = quick_jit(jax.grad(loss, has_aux=True))(x)
    return output, gradient, after


def assert_same(got: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), b, **FLOAT32)


@pytest.mark.parametrize("axis", [1, -3])
def test_units_on_another_axis(axis: int) -> None:
    x, cotangent = (jnp.asarray(normal(seed, 4, WIDTH, 5, 2), jnp.float32) for seed in (4, 5))
    got = trained(ours(axis=axis), x, cotangent)
    assert_same(got, trained(flax(axis=axis), x, cotangent))
    last = [np.moveaxis(np.asarray(a), 1, -1) for a in (x, cotangent)]
    wanted = batch_norm(last[0], SCALE, BIAS, last[1], FULL, 1, EPSILON)
    assert_same(got[:2], [np.moveaxis(a, -1, 1) for a in (wanted.output, wanted.by_x)])
    evaluated, others = ours(axis=axis), flax(axis=axis)
    evaluated.var[...] = others.var[...] = jnp.asarray([1.0, 2.0, 3.0])
    assert_same(evaluated(x, use_running_average=True), others(x, use_running_average=True))


def test_its_axis_is_known_where_it_is_taken_out() -> None:
    x = jnp.asarray(normal(4, 4, WIDTH, 5), jnp.float32)
    model = nnx.Sequential(nnx.relu, ours(axis=1))
    wanted = np.maximum(x, 0) * np.reshape(SCALE, (-1, 1)) + np.reshape(BIAS, (-1, 1))
    assert_same(replace_batch_norm(model)(x), wanted)


def masked_oracle(cotangent: Any, kept: Any) -> tuple[Any, Any, Any]:
    """Of the rows that are kept, in float64; what is left out follows their statistics.

    A row that is left out has a part in its own output alone: gamma / s.
    """
    x, g = np.float64(X), np.float64(cotangent) * np.float64(SCALE)
    mean, variance = x[kept].mean(0), x[kept].var(0)
    s = np.sqrt(variance + EPSILON)
    through = (g.sum(0) + (x - mean) * (g * (x - mean)).sum(0) / s**2) / kept.sum()
    by_x = (g - np.where(kept[:, None], through, 0)) / s
    statistics = {"mean": (1 - MOMENTUM) * mean, "var": MOMENTUM + (1 - MOMENTUM) * variance}
    return (x - mean) / s * np.float64(SCALE) + np.float64(BIAS), by_x, statistics


@pytest.mark.parametrize("full", [False, True])
def test_a_mask_leaves_rows_out_of_the_statistics(full: bool) -> None:
    mask = jnp.asarray(np.repeat(KEPT[:, None], WIDTH, 1) if full else KEPT[:, None])
    got = trained(ours(), X, COTANGENT, mask)
    assert_same(got, masked_oracle(COTANGENT, KEPT))
    assert_same(got, trained(flax(), X, COTANGENT, mask))


def test_a_mask_of_single_values_counts_unit_by_unit() -> None:
    mask = normal(6, ROWS, WIDTH) > [-1, 0, 1]
    layer = ours()
    got = layer(X, mask=jnp.asarray(mask))
    columns = [np.float64(X)[mask[:, i], i] for i in range(WIDTH)]
    mean, variance = (np.asarray([getattr(c, of)() for c in columns]) for of in ("mean", "var"))
    assert_same(got, (np.float64(X) - mean) / np.sqrt(variance + EPSILON) * SCALE + BIAS)
    assert_same(layer.mean[...], (1 - MOMENTUM) * mean)


def test_what_is_masked_may_be_anything() -> None:
    """Padding that the loss leaves out too. Even NaN spoils no statistic."""
    mask, weights = jnp.asarray(KEPT[:, None]), COTANGENT * KEPT[:, None]
    wanted = trained(ours(), X, weights, mask)
    output, gradient, after = trained(ours(), jnp.where(mask, X, 1e6), weights, mask)
    assert_same((output[KEPT], gradient, after), (wanted[0][KEPT], *wanted[1:]))
    layer = ours()
    assert_same(layer(jnp.where(mask, X, jnp.nan), mask=mask)[KEPT], wanted[0][KEPT])
    assert_same(layer.mean[...], after["mean"])


def test_groups_count_by_what_is_left_in_each() -> None:
    """Four ghost batches of six rows, of which 6, 0, 3 and 1 are left in."""
    layer = ours(groups=4)
    got = layer(X, mask=jnp.asarray(KEPT[:, None]))
    parts, kept = np.float64(X).reshape(4, 6, WIDTH), KEPT.reshape(4, 6)
    means, variances = np.zeros((2, 4, WIDTH))
    for i in (0, 2, 3):
        means[i], variances[i] = parts[i, kept[i]].mean(0), parts[i, kept[i]].var(0)
    normalized = (parts - means[:, None]) / np.sqrt(variances[:, None] + EPSILON)
    assert_same(got.reshape(4, 6, WIDTH)[kept], (normalized * SCALE + BIAS)[kept])
    weights = kept.sum(1)[:, None] / kept.sum()
    assert_same(layer.mean[...], (1 - MOMENTUM) * (weights * means).sum(0))
    assert_same(layer.var[...], MOMENTUM + (1 - MOMENTUM) * (weights * variances).sum(0))


def test_statistics_do_not_follow_what_is_masked_whole() -> None:
    layer = ours()
    layer(X, mask=jnp.asarray([[True, False, True]]))
    assert layer.mean[...][1] == 0
    assert layer.var[...][1] == 1
    assert layer.mean[...][0] != 0


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_unequal_counts_over_devices(devices: int, offset: float) -> None:
    """The mean of the devices' means would be another; a shift cancels, where a device has none."""
    apply, params, state = functionalize(ours(axis_name="data"))
    mask = jnp.asarray(KEPT[:, None])

    def local(x: Any, mask: Any, cotangent: Any) -> Any:
        def loss(x: Any) -> Any:
            output, after = apply(params, state, x, train=True, mask=mask)
            return jax.lax.psum((output * cotangent).sum(), "data"), (output, after)

        gradient, (output, after) = jax.grad(loss, has_aux=True)(x)
        return output, gradient, after

    output, by_x, statistics = masked_oracle(COTANGENT, KEPT)
    statistics = statistics | {"mean": statistics["mean"] + (1 - MOMENTUM) * offset}
    with jax.set_mesh(mesh(devices)):
        rows = P("data")
        mapped = jax.shard_map(local, in_specs=(rows,) * 3, out_specs=(rows, rows, P()))
        got = quick_jit(mapped)(X + offset, mask, COTANGENT)
    # Near 1000 the activations themselves are rounded to 6e-5.
    tolerance = FLOAT32 if offset == 0 else {"rtol": 1e-4, "atol": 3e-4}
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves((output, by_x, statistics)), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize("devices", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_unequal_counts_under_pmap(devices: int) -> None:
    apply, params, state = functionalize(ours(axis_name="data"))
    mapped = jax.pmap(
        lambda x, mask: apply(params, state, x, train=True, mask=mask),
        axis_name="data",
        devices=jax.devices()[:devices],
    )
    output, after = mapped(X.reshape(devices, -1, WIDTH), KEPT.reshape(devices, -1, 1))
    wanted, _, statistics = masked_oracle(COTANGENT, KEPT)
    assert_same(output.reshape(ROWS, WIDTH), wanted)
    assert_same(jax.tree.map(lambda leaf: leaf[0], after), statistics)


@pytest.mark.usefixtures("standard_promotion")
def test_the_type_of_the_result_and_the_initializers() -> None:
    layer = BatchNorm(
        WIDTH, dtype=jnp.bfloat16, bias_init=nnx.initializers.normal(), rngs=nnx.Rngs(0)
    )
    others = nnx.BatchNorm(
        WIDTH, dtype=jnp.bfloat16, bias_init=nnx.initializers.normal(), rngs=nnx.Rngs(0)
    )
    assert layer(X).dtype == others(X).dtype == jnp.bfloat16
    assert layer.bias[...].std() > 0
    rngs = nnx.Rngs(0)
    BatchNorm(WIDTH, rngs=rngs)
    assert rngs.params.count[...] == 0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(TypeError, match=r"axis is \(1, 2\); wanted one axis"):
        BatchNorm(WIDTH, axis=(1, 2))
    with pytest.raises(ValueError, match=r"shape \(2, 4, 5\); wanted 3 on axis 1, as the layer"):
        BatchNorm(WIDTH, axis=1)(jnp.ones((2, 4, 5)))
    with pytest.raises(ValueError, match=r"broadcasting.*24.*24, ?3"):
        ours()(X, mask=jnp.ones(ROWS, bool))
    with pytest.raises(TypeError, match=r"mask is of type float32; wanted truth values.*astype"):
        ours()(X, mask=jnp.ones((ROWS, 1)))
    with pytest.raises(ValueError, match=r"initializer .* got no random keys; pass rngs="):
        BatchNorm(WIDTH, scale_init=nnx.initializers.normal())
