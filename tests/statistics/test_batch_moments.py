"""Batch moments against float64 NumPy: offsets, outliers, groups, masks, dtypes, gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxnorm import Moments, batch_moments, merge_moments
from tests.draws import draw, float32, normal

# A sum of n terms in float32 has at most n roundings of 6e-8; pairwise or by lanes far fewer.
SUM = 2e-6
moments = jax.jit(batch_moments, static_argnums=1, static_argnames="groups")


def assert_moments(computed: Moments, x: Any, axes: Any) -> None:
    wide = np.asarray(x, np.float64)
    np.testing.assert_allclose(computed.mean, wide.mean(axes), rtol=SUM, atol=SUM)
    # The shift is off by some deviations, whose square cancels.
    np.testing.assert_allclose(computed.variance, wide.var(axes), rtol=20 * SUM, atol=1e-12)
    assert computed.mean.dtype == computed.variance.dtype == jnp.float32
    assert int(computed.size) == wide.size // wide.mean(axes).size


@settings(max_examples=12)
@given(
    st.sampled_from([(40, 3), (33, 2, 4), (4, 5, 6, 3), (8, 3), (1, 3)]),
    st.integers(0, 99),
    st.data(),
)
def test_moments_equal_numpy(shape: Any, seed: int, data: Any) -> None:
    rank = len(shape)
    axes = tuple(data.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank)))
    x = draw(seed, *shape) * 3 + 1
    assert_moments(moments(x, axes), x, axes)
    assert_moments(moments(x, tuple(axis - rank for axis in axes)), x, axes)


@pytest.mark.parametrize("samples", [8, 4096])
@pytest.mark.parametrize("offset", [1e3, -1e5])
def test_offset_costs_no_accuracy(samples: int, offset: float) -> None:
    x = float32(normal(1, samples, 3) + offset)
    assert_moments(moments(x, 0), x, 0)


#: Places of zeros among values near 3000.
OUTLIERS: dict[str, Any] = {
    "the first value": np.s_[0, 0, 0],
    "the last value": np.s_[-1, -1, -1],
    "a corner of every image": np.s_[:, 0, 0],
    "the middle of an image": np.s_[0, 31:33, 32],
}


@pytest.mark.parametrize("samples", [64, 2])
@pytest.mark.parametrize("place", OUTLIERS)
def test_outliers_cost_no_accuracy(place: str, samples: int) -> None:
    """Sums of squares around an outlier would lose the variance of all other values."""
    values = 3000 + normal(10, samples, 64, 64, 2)
    values[OUTLIERS[place]] = 0
    computed = moments(jnp.asarray(values, jnp.float32), (0, 1, 2))
    wide = values.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(computed.mean, wide.mean((0, 1, 2)), rtol=SUM)
    # Older compilers for CPUs add the 2^18 squares of 64 images one after the other.
    rtol = 3e-4 if samples == 64 else 2e-5
    np.testing.assert_allclose(computed.variance, wide.var((0, 1, 2)), rtol=rtol)


@pytest.mark.parametrize("samples", [8, 500])
def test_bfloat16_with_large_offset(samples: int) -> None:
    """Near 1e4 the numbers are 64 apart: the oracle reads the stored ones."""
    x = jnp.asarray(1e4 + 300 * normal(1, samples, 3), jnp.bfloat16)
    wide = np.asarray(x, np.float64)
    mean, variance, _ = batch_moments(x, 0)
    np.testing.assert_allclose(mean, wide.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, wide.var(0), rtol=1e-5)


def test_float64_stays_float64() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(normal(3, 100, 2) + 1e6)
        mean, variance, _ = batch_moments(x, 0)
        np.testing.assert_allclose(mean, np.mean(x, 0), rtol=1e-14)
        np.testing.assert_allclose(variance, np.var(x, 0), rtol=1e-12)


#: Shapes, their sample axes, and the first of these, which is split into groups.
GROUPED = [((80, 3), (0,), 0), ((8, 4, 4, 3), (0, 1, 2), 0), ((3, 12, 2), (1,), 1)]


@pytest.mark.parametrize(("shape", "axes", "first"), GROUPED)
@pytest.mark.parametrize("groups", [2, 4])
def test_each_group_has_its_own_moments(shape: Any, axes: Any, first: int, groups: int) -> None:
    growing = np.linspace(1, 9, shape[first]).reshape(-1, *[1] * (len(shape) - first - 1))
    x = float32(normal(4, *shape) * growing)
    mean, variance, size = moments(x, axes, groups=groups)
    for index, part in enumerate(np.split(np.asarray(x), groups, axis=first)):
        assert_moments(Moments(mean[index], variance[index], size), part, axes)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("samples", [5, 64])
def test_gradients_equal_the_formulas(samples: int, masked: bool) -> None:
    """Masked values are NaN here: they change no gradient, and their own gradient is 0."""
    kept = np.arange(samples)[:, None] % 4 != 1 if masked else np.ones((samples, 1), bool)
    x = float32(normal(6, samples, 2) + 50)
    by_mean, by_variance = normal(7, 2), normal(8, 2)

    def loss(x: jax.Array) -> jax.Array:
        mean, variance, _ = batch_moments(x, 0, where=kept if masked else None)
        weights = [jnp.asarray(w, jnp.float32) for w in (by_mean, by_variance)]
        return (mean * weights[0] + variance * weights[1]).sum()

    wide = np.asarray(x, np.float64)
    deviation = wide - wide[kept[:, 0]].mean(0)
    expected = kept * (by_mean + 2 * by_variance * deviation) / kept.sum()
    computed = jax.jit(jax.grad(loss))(jnp.where(kept, x, jnp.nan))
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("samples", [1, 8, 100])
def test_constant_channel_has_variance_zero_and_gradient_zero(samples: int) -> None:
    x = jnp.full((samples, 2), 7.3, jnp.float32)
    computed = moments(x, 0)
    np.testing.assert_allclose(computed.mean, x[0], rtol=SUM)
    assert np.all((np.asarray(computed.variance) >= 0) & (np.asarray(computed.variance) < 1e-11))
    gradient = jax.jit(jax.grad(lambda x: batch_moments(x, 0).variance.sum()))(x)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


@pytest.mark.kept("inf-1", "nan-2")
@pytest.mark.parametrize("groups", [1, 2, 16])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_broken_value_breaks_its_own_unit_and_group_only(bad: float, groups: int) -> None:
    """The broken value is part of the shift: of the mean of 128 values, of 64 and of 8."""
    x = draw(0, 128, 3)
    good = [value.reshape(groups, 3) for value in batch_moments(x, 0, groups=groups)[:2]]
    broken = batch_moments(x.at[5, 1].set(bad), 0, groups=groups)[:2]
    is_broken = np.zeros((groups, 3), bool)
    is_broken[0, 1] = True
    for value, expected in zip(broken, good, strict=True):
        value = value.reshape(groups, 3)
        np.testing.assert_array_equal(~np.isfinite(value), is_broken)
        np.testing.assert_allclose(value[~is_broken], expected[~is_broken], rtol=1e-5, atol=1e-6)


def test_masked_parts_merge_to_the_whole() -> None:
    """Each unit counts its own values, so parts with different masks per unit merge exactly."""
    x = float32(np.random.default_rng(0).normal((0, 100, 1e4), size=(40, 3)))
    mask = np.random.default_rng(1).random((40, 3)) < [0.2, 0.5, 0.9]
    mask[:, 0] &= np.arange(40) < 20  # The second half has no value of the first unit.
    parts = (batch_moments(x, 0, where=where) for where in (jnp.asarray(mask), ~jnp.asarray(mask)))
    merged = merge_moments(*parts)
    wide = np.asarray(x, np.float64)
    np.testing.assert_allclose(merged.mean, wide.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(merged.variance, wide.var(0), rtol=1e-5)
    np.testing.assert_array_equal(merged.size, 40.0)
    halves = batch_moments(x, 0, groups=2, where=jnp.asarray(mask))
    np.testing.assert_array_equal(halves.size, mask.reshape(2, 20, 3).sum(1))
    assert [value[1, 0].item() for value in halves] == [0, 0, 0]


@pytest.mark.parametrize("where", [None, np.ones((0, 3), bool)])
def test_empty_batch_is_the_neutral_element(where: Any) -> None:
    empty, whole = batch_moments(jnp.ones((0, 3)), 0, where=where), batch_moments(draw(0, 9, 3), 0)
    for merged in (merge_moments(empty, whole), merge_moments(whole, empty)):
        for value, expected in zip(merged, whole, strict=True):
            np.testing.assert_allclose(value, np.broadcast_to(expected, value.shape), rtol=1e-6)
    both = merge_moments(empty, empty)
    assert not np.concatenate([np.ravel(value) for value in both]).any()
