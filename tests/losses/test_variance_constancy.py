"""The variance constancy loss against NumPy, its gradients, its degenerate inputs and errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxnorm import (
    initial_betas,
    positive_betas,
    total_variance_constancy,
    variance_constancy_loss,
)
from tests.draws import normal
from tests.losses.oracles import variance_constancy
from tests.oracles import slopes

# Two variances of a few values, a quotient and a square, on terms of order one to a hundred.
FLOAT32 = {"rtol": 2e-5, "atol": 1e-6}
loss = jax.jit(
    variance_constancy_loss, static_argnames=("sample_size", "sample_axes", "axis_name", "groups")
)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    n, groups = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    batch = groups * (2 * n + draw(st.integers(0, 2)))
    shape = (batch, *draw(st.lists(st.integers(1, 3), min_size=0, max_size=3)))
    others = draw(st.sets(st.integers(1, len(shape) - 1))) if len(shape) > 1 else set()
    return {"shape": shape, "sample_axes": (0, *sorted(others)), "n": n, "groups": groups}


@given(cases(), st.integers(0, 99))
def test_the_loss_is_that_of_numpy(case: dict[str, Any], seed: int) -> None:
    shape, axes, n, groups = (case[k] for k in ("shape", "sample_axes", "n", "groups"))
    x = jnp.asarray(2 * normal(seed, *shape) + 3, jnp.float32)
    units = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    beta = jnp.asarray(np.abs(normal(seed + 1, *units)) + 0.3, jnp.float32)
    got = loss(x, beta, sample_size=n, sample_axes=axes, groups=groups)
    assert (got.shape, got.dtype) == ((), jnp.float32)
    np.testing.assert_allclose(got, variance_constancy(x, beta, n, axes, groups), **FLOAT32)


def test_gradients_are_those_of_differences_in_numpy() -> None:
    """Of what the loss reads, and zero elsewhere: a group of five rows has one too many."""
    x, beta = 2 * normal(3, 10, 3) + 3, np.abs(normal(4, 3)) + 0.3
    options = {"sample_size": 2, "groups": 2}
    got = jax.grad(loss, (0, 1))(jnp.float32(x), jnp.float32(beta), **options)
    of_x, of_beta = (
        slopes(lambda x: variance_constancy(x, beta, 2, groups=2), x),
        slopes(lambda beta: variance_constancy(x, beta, 2, groups=2), beta),
    )
    for gradient, wanted in zip(got, (of_x, of_beta), strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)
    assert not np.asarray(got[0])[[4, 9]].any()


def test_none_is_all_axes_but_the_last() -> None:
    x = jnp.asarray(normal(2, 9, 3, 3, 4), jnp.float32)
    wanted = variance_constancy(x, 1.0, 4, (0, 1, 2))
    np.testing.assert_allclose(loss(x, 1.0, sample_size=4, sample_axes=None), wanted, **FLOAT32)
    negative = loss(x, 1.0, sample_size=4, sample_axes=(-4, -3, -2))
    np.testing.assert_allclose(negative, wanted, **FLOAT32)


def test_the_total_is_the_sum_over_layers() -> None:
    layers = {
        "a": jnp.asarray(normal(5, 8, 3), jnp.float32),
        "b": [jnp.asarray(normal(6, 8, 2, 2, 4), jnp.float32)],
    }
    betas = jax.tree.map(lambda raw: positive_betas(raw + 0.7), initial_betas(layers))
    wanted = sum(
        variance_constancy(x, b, 3)
        for x, b in zip(jax.tree.leaves(layers), jax.tree.leaves(betas), strict=True)
    )
    np.testing.assert_allclose(total_variance_constancy(layers, betas, 3), wanted, **FLOAT32)
    channels = positive_betas(initial_betas(layers, sample_axes=None))
    assert [b.shape for b in jax.tree.leaves(channels)] == [(3,), (4,)]
    got = total_variance_constancy(layers, channels, sample_axes=None)
    wanted = variance_constancy(layers["a"], 1.0, 2) + variance_constancy(
        layers["b"][0], 1.0, 2, (0, 1, 2)
    )
    np.testing.assert_allclose(got, wanted, **FLOAT32)


def test_betas_start_at_one_from_shapes_alone_and_stay_positive() -> None:
    shapes = jax.eval_shape(lambda: {"h": jnp.zeros((8, 3), jnp.bfloat16)})
    raw = initial_betas(shapes)
    assert (raw["h"].shape, raw["h"].dtype) == ((3,), jnp.float32)
    np.testing.assert_allclose(positive_betas(raw)["h"], 1.0, rtol=1e-6)
    assert np.all(np.asarray(positive_betas(jnp.linspace(-87, 87, 175))) > 0)


@pytest.mark.parametrize("beta", [1.0, 1e-6])
def test_a_constant_channel_costs_one_and_has_gradient_zero(beta: float) -> None:
    x = jnp.full((8, 2), 7.3)
    value, gradients = jax.value_and_grad(variance_constancy_loss, (0, 1))(x, jnp.full(2, beta))
    assert float(value) == 1.0
    for gradient in gradients:
        assert not np.asarray(gradient).any()


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_broken_sample_is_seen_where_it_is_read_and_only_there(bad: float) -> None:
    x = jnp.asarray(normal(7, 8, 2), jnp.float32)
    assert np.isnan(loss(x.at[3, 0].set(bad), 1.0))
    assert float(loss(x.at[4, 0].set(bad), 1.0)) == float(loss(x, 1.0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_half_types_of_large_offset(dtype: str) -> None:
    x = jnp.asarray(normal(8, 10, 3) * 3 + 500, jnp.dtype(dtype))
    beta = jnp.ones(3, jnp.dtype(dtype))
    got, gradient = jax.value_and_grad(variance_constancy_loss)(x, beta, 5)
    assert (got.dtype, gradient.dtype) == (jnp.float32, x.dtype)
    np.testing.assert_allclose(got, variance_constancy(x, 1.0, 5), **FLOAT32)


def test_what_cannot_be_is_refused() -> None:
    x = jnp.ones((6, 2, 3))
    beta = jnp.ones((2, 3))
    for options in ({"sample_size": 4}, {"groups": 3}, {"sample_size": 0}):
        with pytest.raises(ValueError, match=r"takes the first .* rows .* these 6 rows has"):
            variance_constancy_loss(x, beta, **options)
    with pytest.raises(ValueError, match=r"beta has the shape \(3,\); wanted \(2, 3\)"):
        variance_constancy_loss(x, jnp.ones(3))
    with pytest.raises(ValueError, match=r"sample_size=1.*subsets of one value"):
        variance_constancy_loss(x, beta, 1)
