"""Merged moments are exact: for unequal minibatches, in a scan, from a generator, of any size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxnorm import Moments, batch_moments, merge_moments
from jaxnorm.batch_norm import population_statistics
from tests.draws import draw, float32, normal


def assert_moments(computed: Moments, x: Any, axes: Any) -> None:
    wide = np.asarray(x, np.float64)
    np.testing.assert_allclose(computed.mean, wide.mean(axes), rtol=1e-6, atol=1e-6)
    # A mean is stored to a rounding of its size; times the spread of the means that is lost.
    lost = 1e-5 + 1e-7 * np.abs(wide).max()
    np.testing.assert_allclose(computed.variance, wide.var(axes), rtol=lost)
    assert int(computed.size) == wide.size // wide.mean(axes).size


@settings(max_examples=8)
@given(st.lists(st.sampled_from([1, 2, 7, 50]), min_size=1, max_size=6), st.floats(-1e4, 1e4))
def test_minibatches_of_any_sizes_merge_exactly(sizes: list[int], offset: float) -> None:
    """The means drift from minibatch to minibatch: a mean of means would be far off."""
    parts = [normal(i, n, 3) + offset + 5 * i for i, n in enumerate(sizes)]
    stored = [jnp.asarray(part, jnp.float32) for part in parts]
    assert_moments(population_statistics(iter(stored), 0), np.concatenate(stored), 0)


def test_merging_inside_a_scan() -> None:
    x = float32(normal(5, 10, 20, 3) + np.arange(10).reshape(10, 1, 1))
    empty = Moments(jnp.zeros(3), jnp.zeros(3), jnp.zeros(()))

    def step(total: Moments, batch: jax.Array) -> tuple[Moments, None]:
        return merge_moments(total, batch_moments(batch, 0)), None

    assert_moments(jax.jit(lambda x: jax.lax.scan(step, empty, x)[0])(x), x, (0, 1))


def test_layers_of_any_rank_have_moments_per_channel() -> None:
    batches = [
        {"conv": draw(i, n, 3, 3, 4), "dense": jnp.ones((n, 2)) * i} for i, n in enumerate((8, 5))
    ]
    computed = population_statistics(batches)
    for name, axes in (("conv", (0, 1, 2)), ("dense", 0)):
        assert_moments(computed[name], np.concatenate([batch[name] for batch in batches]), axes)


@pytest.mark.parametrize("size", [1e-30, 1e12, 1e30])
def test_empty_sample_is_neutral_to_moments_of_any_size(size: float) -> None:
    """The square of the means' difference overflows at 1e30; its weight is 0."""
    constant = batch_moments(jnp.full((4, 2), size), 0)  # a mean without rounding
    empty = batch_moments(jnp.ones((0, 2)), 0)
    for merged in (merge_moments(empty, constant), merge_moments(constant, empty)):
        assert merged.mean.tolist() == constant.mean.tolist()
        assert merged.variance.tolist() == [0.0, 0.0]
