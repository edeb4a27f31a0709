"""Batch moments against float64 NumPy, with offsets, groups, half types and broken samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxnorm.statistics import (
    Moments,
    batch_moments,
    merge_moments,
    sample_variance,
)
from tests.draws import normal

# A sum of n terms in float32 has at most n roundings of 6e-8; pairwise or by lanes far fewer.
SUM = 2e-6
moments = jax.jit(batch_moments, static_argnums=1, static_argnames=("axis_name", "groups"))


def numpy_moments(x: Any, axes: Any) -> tuple[Any, Any]:
    wide = np.asarray(x, np.float64)
    return wide.mean(axes), wide.var(axes)


def assert_moments(got: Moments, x: Any, axes: Any) -> None:
    mean, variance = numpy_moments(x, axes)
    np.testing.assert_allclose(got.mean, mean, rtol=SUM, atol=SUM)
    # The shift is off by some deviations, whose square is what cancels.
    np.testing.assert_allclose(got.variance, variance, rtol=20 * SUM, atol=1e-12)
    assert got.mean.dtype == got.variance.dtype == jnp.float32
    assert int(got.size) == x.size // mean.size


@settings(max_examples=12)
@given(
    st.sampled_from([(40, 3), (33, 2, 4), (4, 5, 6, 3), (8, 3), (1, 3)]),
    st.integers(0, 99),
    st.data(),
)
def test_moments_are_those_of_numpy(shape: Any, seed: int, data: Any) -> None:
    rank = len(shape)
    axes = tuple(data.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank)))
    x = jnp.asarray(normal(seed, *shape) * 3 + 1, jnp.float32)
    assert_moments(moments(x, axes), x, axes)
    assert_moments(moments(x, tuple(a - rank for a in axes)), x, axes)


@pytest.mark.parametrize("samples", [8, 4096])
@pytest.mark.parametrize("offset", [1e3, -1e5])
def test_an_offset_costs_no_accuracy(samples: int, offset: float) -> None:
    x = jnp.asarray(normal(1, samples, 3) + offset, jnp.float32)
    assert_moments(moments(x, 0), x, 0)


UNTYPICAL: dict[str, Any] = {
    "the first value": np.s_[0, 0, 0],
    "the last value": np.s_[-1, -1, -1],
    "a corner of every image": np.s_[:, 0, 0],
    "the middle of an image": np.s_[30, 30:34, 32],
}


@pytest.mark.parametrize("where", UNTYPICAL)
def test_untypical_values_cost_no_accuracy(where: str) -> None:
    """Zeros among values near 3000: sums of squares about 0 would lose the variance of the rest."""
    values = 3000 + normal(10, 64, 64, 64, 2)
    values[UNTYPICAL[where]] = 0
    x = jnp.asarray(values, jnp.float32)
    mean, variance = numpy_moments(x, (0, 1, 2))
    got = moments(x, (0, 1, 2))
    np.testing.assert_allclose(got.mean, mean, rtol=SUM, atol=SUM)
    # Older compilers for CPUs add these 2^18 squares one after the other.
    np.testing.assert_allclose(got.variance, variance, rtol=3e-4)


def test_float64_stays_float64() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(normal(3, 100, 2) + 1e6)
        mean, variance, _ = batch_moments(x, 0)
        wanted = numpy_moments(x, 0)
        np.testing.assert_allclose(mean, wanted[0], rtol=1e-14)
        np.testing.assert_allclose(variance, wanted[1], rtol=1e-12)


#: Shapes, their sample axes, and the axis that the groups are of: the first of these.
GROUPED = [((80, 3), (0,), 0), ((8, 4, 4, 3), (0, 1, 2), 0), ((3, 12, 2), (1,), 1)]


@pytest.mark.parametrize(("shape", "axes", "first"), GROUPED)
@pytest.mark.parametrize("groups", [2, 4])
def test_each_group_has_its_own(shape: Any, axes: Any, first: int, groups: int) -> None:
    growing = np.linspace(1, 9, shape[first]).reshape(-1, *[1] * (len(shape) - first - 1))
    x = jnp.asarray(normal(4, *shape) * growing, jnp.float32)
    mean, variance, size = moments(x, axes, groups=groups)
    for index, part in enumerate(np.split(np.asarray(x), groups, axis=first)):
        assert_moments(Moments(mean[index], variance[index], size), part, axes)


@pytest.mark.parametrize("samples", [5, 64])
def test_gradients_are_those_of_the_formulas(samples: int) -> None:
    x = jnp.asarray(normal(6, samples, 2) + 50, jnp.float32)
    by_mean, by_variance = normal(7, 2), normal(8, 2)

    def loss(x: jax.Array) -> jax.Array:
        mean, variance, _ = batch_moments(x, 0)
        weights = [jnp.asarray(w, jnp.float32) for w in (by_mean, by_variance)]
        return (mean * weights[0] + variance * weights[1]).sum()

    wide = np.asarray(x, np.float64)
    wanted = (by_mean + 2 * by_variance * (wide - wide.mean(0))) / samples
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("samples", [1, 8, 100])
def test_a_constant_channel_has_variance_zero_and_gradient_zero(samples: int) -> None:
    x = jnp.full((samples, 2), 7.3, jnp.float32)
    got = moments(x, 0)
    np.testing.assert_allclose(got.mean, x[0], rtol=SUM)
    assert np.all((np.asarray(got.variance) >= 0) & (np.asarray(got.variance) < 1e-11))
    gradient = jax.jit(jax.grad(lambda x: batch_moments(x, 0).variance.sum()))(x)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_what_cannot_be_is_refused() -> None:
    x = jnp.ones((6, 2))
    for groups in (4, 0):
        with pytest.raises(ValueError, match=rf"groups={groups} does not divide the 6 samples"):
            batch_moments(x, 0, groups=groups)
    with pytest.raises(ValueError, match="groups=2 and axis_name='data'; wanted one of them"):
        batch_moments(x, 0, groups=2, axis_name="data")


@given(st.sampled_from([2, 3, 9]), st.integers(0, 99), st.floats(0, 1e4))
def test_sample_variance_is_numpys(samples: int, seed: int, offset: float) -> None:
    x = jnp.asarray(normal(seed, samples, 3) + offset, jnp.float32)
    wanted = np.asarray(x, np.float64).var(0, ddof=1)
    np.testing.assert_allclose(
        jax.jit(sample_variance, static_argnums=1)(x, 0), wanted, rtol=1e-5, atol=1e-9
    )


def test_the_variance_of_one_sample_is_zero_with_gradient_zero() -> None:
    x = jnp.asarray([[3.0, -4.0]])
    assert sample_variance(x, 0).tolist() == [0.0, 0.0]
    assert jax.grad(lambda x: sample_variance(x, 0).sum())(x).tolist() == [[0.0, 0.0]]


def test_masked_parts_merge_to_the_whole() -> None:
    """Counts are the units' own, so that parts which see other units differently merge exactly."""
    x = jnp.asarray(np.random.default_rng(0).normal((0, 100, 1e4), size=(40, 3)), jnp.float32)
    mask = np.random.default_rng(1).random((40, 3)) < [0.2, 0.5, 0.9]
    mask[:, 0] &= np.arange(40) < 20  # Of the first unit one part has nothing.
    parts = (batch_moments(x, 0, where=where) for where in (jnp.asarray(mask), ~jnp.asarray(mask)))
    merged = merge_moments(*parts)
    wide = np.asarray(x, np.float64)
    np.testing.assert_allclose(merged.mean, wide.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(merged.variance, wide.var(0), rtol=1e-5)
    np.testing.assert_array_equal(merged.size, 40.0)
    halves = batch_moments(x, 0, groups=2, where=jnp.asarray(mask))
    np.testing.assert_array_equal(halves.size, mask.reshape(2, 20, 3).sum(1))
    assert (halves.mean[1, 0], halves.variance[1, 0], halves.size[1, 0]) == (0, 0, 0)
