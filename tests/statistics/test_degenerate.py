"""Broken values and large offsets: seen in their own unit and group, and in no other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.statistics import (
    batch_moments,
    kurtosis,
    merge_moments,
    sample_variance,
)

GOOD = jnp.asarray(np.random.default_rng(0).normal(size=(128, 3)), jnp.float32)
STATISTICS = (kurtosis, sample_variance)
BROKEN = pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])


@BROKEN
def test_a_broken_value_is_seen_in_its_unit_and_group_alone(bad: float) -> None:
    """The broken value is part of the shift: of the mean of 128 values, of 64 and of 8."""
    x = GOOD.at[5, 1].set(bad)
    broken = np.array([[False, True, False]])
    pairs = [(statistic(x, 0)[None], statistic(GOOD, 0)[None]) for statistic in STATISTICS]
    for groups in (2, 16):
        found = (batch_moments(each, 0, groups=groups)[:2] for each in (x, GOOD))
        pairs += zip(*found, strict=True)
    for value, exact in pairs:
        wanted = np.pad(broken, ((0, len(value) - 1), (0, 0)))
        np.testing.assert_array_equal(~np.isfinite(value), wanted)
        np.testing.assert_allclose(value[~wanted], exact[~wanted], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("samples", [8, 500])
def test_bfloat16_of_large_offset(samples: int) -> None:
    """Near 1e4 its numbers are 64 apart; the oracle gets the stored ones.

    A mean is right to 1e-3, a rounding of 1e4, of deviations of 300: 3e-6 a factor.
    """
    noise = np.random.default_rng(1).normal(size=(samples, 3))
    x = jnp.asarray(1e4 + 300 * noise, jnp.bfloat16)
    wide = np.asarray(x, np.float64)
    mean, variance, _ = batch_moments(x, 0)
    np.testing.assert_allclose(mean, wide.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, wide.var(0), rtol=1e-5)
    np.testing.assert_allclose(sample_variance(x, 0), wide.var(0, ddof=1), rtol=1e-5)
    fourth = ((wide - wide.mean(0)) ** 4).mean(0) / wide.var(0) ** 2
    np.testing.assert_allclose(kurtosis(x, 0), fourth, rtol=2e-5)


@pytest.mark.parametrize("value", [7.3, 1e4, 0.0])
@pytest.mark.parametrize("samples", [1, 7])
def test_a_constant_unit_has_a_gaussians_kurtosis_and_gradient_zero(
    samples: int, value: float
) -> None:
    x = jnp.full((samples, 1), value)
    assert kurtosis(x, 0).tolist() == [3.0]
    assert not np.asarray(jax.grad(lambda x: kurtosis(x, 0).sum())(x)).any()


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_the_kurtosis_does_not_depend_on_the_size(size: float) -> None:
    """Of a heavy-tailed sample, of this size and its square; and its gradient."""
    sample = np.random.default_rng(2).laplace(size=(1000, 2)) + 0.5
    x = jnp.asarray(size * sample, jnp.float32)
    wide = np.asarray(x, np.float64)
    deviation = wide - wide.mean(0)
    second, fourth = (deviation**2).mean(0), (deviation**4).mean(0)
    for sized in (x, jnp.asarray(size**2 * sample, jnp.float32)):
        np.testing.assert_allclose(kurtosis(sized, 0), fourth / second**2, rtol=2e-5)
    gradient = jax.grad(lambda x: kurtosis(x, 0).sum())(x)
    # d(m4 / m2^2) / dx, where dm4/dx = 4 (d^3 - m3) / n and dm2/dx = 2 d / n.
    third = (deviation**3).mean(0)
    wanted = 4 * ((deviation**3 - third) / second**2 - fourth * deviation / second**3) / len(x)
    np.testing.assert_allclose(
        np.asarray(gradient, np.float64) * size, wanted * size, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("size", [1e-30, 1e12, 1e30])
def test_an_empty_sample_is_neutral_to_moments_of_any_size(size: float) -> None:
    """The square of the means' difference overflows at the last one; its weight is 0."""
    constant = batch_moments(jnp.full((5, 2), size), 0)
    empty = batch_moments(GOOD[:0, :2], 0)
    for merged in (merge_moments(empty, constant), merge_moments(constant, empty)):
        assert merged.mean.tolist() == constant.mean.tolist()
        assert merged.variance.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("where", [None, np.ones((0, 3), bool)])
def test_an_empty_batch_is_the_neutral_element(where: Any) -> None:
    empty, whole = batch_moments(GOOD[:0], 0, where=where), batch_moments(GOOD, 0)
    for merged in (merge_moments(empty, whole), merge_moments(whole, empty)):
        for got, wanted in zip(merged, whole, strict=True):
            np.testing.assert_allclose(got, np.broadcast_to(wanted, got.shape), rtol=1e-6)
    both = merge_moments(empty, empty)
    assert not np.concatenate([np.ravel(value) for value in both]).any()
