"""Independent positions against their meaning: the variance of a batch's mean."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.batch_norm import independent_positions


def test_variance_of_the_mean_of_a_batch() -> None:
    """AR(1) along 16 positions: Var(mean of N samples) = variance / (N * independent_positions)."""
    random = np.random.default_rng(0)
    samples, length, correlation = 40_000, 16, 0.7
    x = np.empty((samples, length))
    x[:, 0] = random.normal(size=samples)
    for t in range(1, length):
        noise = random.normal(size=samples)
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * noise
    lags = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    exact = 1 / np.mean(correlation**lags)
    estimate = float(independent_positions(jnp.asarray(x[..., None] + 3, jnp.float32))[0])
    assert estimate == pytest.approx(exact, rel=4 * np.sqrt(2 / samples))


def test_ends_of_the_range() -> None:
    """P for positions that cancel, to rounding or nearly, and for constants; 1 for equal ones."""
    random = np.random.default_rng(1)
    alternating = np.array([1.0, -1.0]) * random.normal(size=(50, 1))
    nearly = alternating + 0.01 * random.normal(size=(50, 2))
    equal = np.ones(2) * random.normal(size=(50, 1))
    constant = np.full((50, 2), 7.0)
    x = jnp.asarray(np.stack([alternating, nearly, equal, constant], -1), jnp.float32)
    np.testing.assert_allclose(independent_positions(x), [2, 2, 1, 2], rtol=1e-5)
    np.testing.assert_array_equal(independent_positions(jnp.ones((1, 3, 3, 2))), [9, 9])
    np.testing.assert_array_equal(independent_positions(jnp.ones((4, 2))), [1, 1])
    broken = independent_positions(x.at[0, 0, 0].set(jnp.nan))
    np.testing.assert_array_equal(np.isnan(broken), [True, False, False, False])


@pytest.mark.parametrize("offset", [0.0, -1e6])
@pytest.mark.parametrize("size", [1e-6, 1e6])
@pytest.mark.parametrize("devices", [1, 4])
def test_neither_size_nor_offset_matters(size: float, offset: float, devices: int) -> None:
    """The rounding error of the mean of a large offset is common to all samples."""
    random = np.random.default_rng(3)
    own, shared = random.normal(size=(64, 100, 2)), random.normal(size=(64, 1, 2))
    x = np.asarray(size * (own + 0.5 * shared + offset), np.float32)
    deviation = x.astype(np.float64) - x.astype(np.float64).mean((0, 1))
    expected = (deviation**2).mean((0, 1)) / (deviation.mean(1) ** 2).mean(0)
    if devices == 1:
        estimate = independent_positions(jnp.asarray(x))
    else:
        parts = jnp.asarray(x.reshape(devices, -1, *x.shape[1:]))
        pooled = partial(independent_positions, axis_name="i")
        estimate = jax.vmap(pooled, axis_name="i")(parts)[0]
    np.testing.assert_allclose(estimate, expected, rtol=1e-4)
