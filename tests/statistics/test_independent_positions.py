"""Independent positions against their meaning: the variance of a batch's mean."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.statistics import independent_positions


def test_it_says_how_the_mean_of_a_batch_varies():
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
    got = float(independent_positions(jnp.asarray(x[..., None] + 3, jnp.float32))[0])
    assert got == pytest.approx(exact, rel=4 * np.sqrt(2 / samples))


def test_the_ends_of_the_range():
    random = np.random.default_rng(1)
    alternating = np.array([1.0, -1.0]) * random.normal(size=(50, 1))
    same = np.ones(2) * random.normal(size=(50, 1))
    constant = np.full((50, 2), 7.0)
    x = jnp.asarray(np.stack([alternating, same, constant], -1), jnp.float32)
    # Positions that cancel say all of the mean, and count as no more than there are.
    np.testing.assert_allclose(independent_positions(x), [2, 1, 2], rtol=1e-5)
    np.testing.assert_array_equal(independent_positions(jnp.ones((1, 3, 3, 2))), [9, 9])
    np.testing.assert_array_equal(independent_positions(jnp.ones((4, 2))), [1, 1])
    assert np.isnan(np.asarray(independent_positions(x.at[0, 0, 0].set(jnp.nan)))).tolist() == [
        True,
        False,
        False,
    ]


def correlated(size: float, offset: float) -> np.ndarray:
    """Positions that share a fifth of their variance; as float32 stores them."""
    random = np.random.default_rng(3)
    own, shared = random.normal(size=(64, 100, 2)), random.normal(size=(64, 1, 2))
    return np.asarray(size * (own + 0.5 * shared) + offset, np.float32)


def in_float64(x: np.ndarray) -> np.ndarray:
    deviation = x.astype(np.float64) - x.astype(np.float64).mean((0, 1))
    return (deviation**2).mean((0, 1)) / (deviation.mean(1) ** 2).mean(0)


@pytest.mark.parametrize("offset", [0.0, -1e6])
@pytest.mark.parametrize("size", [1e-6, 1e6])
@pytest.mark.parametrize("devices", [1, 4])
def test_neither_the_size_nor_an_offset_changes_it(size: float, offset: float, devices: int):
    """The rounding of the mean of a large offset is common to all samples."""
    x = correlated(size, size * offset)
    if devices == 1:
        got = independent_positions(jnp.asarray(x))
    else:
        parts = jnp.asarray(x.reshape(devices, -1, *x.shape[1:]))
        got = jax.vmap(partial(independent_positions, axis_name="i"), axis_name="i")(parts)[0]
    np.testing.assert_allclose(got, in_float64(x), rtol=1e-4)
