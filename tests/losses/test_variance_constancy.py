"""Variance constancy loss against NumPy: values, gradients and degenerate inputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxnorm import variance_constancy_loss
from jaxnorm.vcl import initial_betas, positive_betas, total_variance_constancy
from tests.draws import draw, float32, normal
from tests.losses.oracles import variance_constancy
from tests.oracles import slopes

# Two variances of a few values, a quotient and a square, on terms of order one to a hundred.
FLOAT32 = {"rtol": 2e-5, "atol": 1e-6}
loss = jax.jit(variance_constancy_loss, static_argnames=("sample_size", "sample_axes", "groups"))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    n, groups = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    batch = groups * (2 * n + draw(st.integers(0, 2)))
    shape = (batch, *draw(st.lists(st.integers(1, 3), min_size=0, max_size=3)))
    positions = draw(st.sets(st.integers(1, len(shape) - 1))) if len(shape) > 1 else set()
    return {"shape": shape, "sample_axes": (0, *sorted(positions)), "n": n, "groups": groups}


@given(cases(), st.integers(0, 99), st.floats(0, 1e3))
def test_loss_equals_numpy(case: dict[str, Any], seed: int, offset: float) -> None:
    shape, axes, n, groups = (case[key] for key in ("shape", "sample_axes", "n", "groups"))
    x = float32(2 * normal(seed, *shape) + offset)
    units = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    beta = float32(np.abs(normal(seed + 1, *units)) + 0.3)
    computed = loss(x, beta, sample_size=n, sample_axes=axes, groups=groups)
    assert (computed.shape, computed.dtype) == ((), jnp.float32)
    np.testing.assert_allclose(computed, variance_constancy(x, beta, n, axes, groups), **FLOAT32)


def test_gradients_equal_finite_differences_in_numpy() -> None:
    """Rows that the loss does not read have gradient 0: each group of five has one row too many."""
    x, beta = 2 * normal(3, 10, 3) + 3, np.abs(normal(4, 3)) + 0.3
    options = {"sample_size": 2, "groups": 2}
    gradients = jax.grad(loss, (0, 1))(jnp.float32(x), jnp.float32(beta), **options)
    expected = (
        slopes(lambda x: variance_constancy(x, beta, 2, groups=2), x),
        slopes(lambda beta: variance_constancy(x, beta, 2, groups=2), beta),
    )
    for gradient, slope in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-5)
    assert not np.asarray(gradients[0])[[4, 9]].any()


@pytest.mark.parametrize("sample_axes", [None, (-4, -3, -2)])
def test_none_means_all_axes_but_the_last(sample_axes: Any) -> None:
    x = draw(2, 9, 3, 3, 4)
    expected = variance_constancy(x, 1.0, 4, (0, 1, 2))
    computed = loss(x, 1.0, sample_size=4, sample_axes=sample_axes)
    np.testing.assert_allclose(computed, expected, **FLOAT32)


def test_total_is_the_sum_over_layers() -> None:
    layers = {"a": draw(5, 8, 3), "b": [draw(6, 8, 2, 2, 4)]}
    betas = jax.tree.map(lambda raw: positive_betas(raw + 0.7), initial_betas(layers))
    terms = jax.tree.map(lambda x, beta: variance_constancy(x, beta, 3), layers, betas)
    expected = sum(jax.tree.leaves(terms))
    np.testing.assert_allclose(total_variance_constancy(layers, betas, 3), expected, **FLOAT32)
    channels = positive_betas(initial_betas(layers, sample_axes=None))
    assert [beta.shape for beta in jax.tree.leaves(channels)] == [(3,), (4,)]
    total = total_variance_constancy(layers, channels, sample_axes=None)
    expected = variance_constancy(layers["a"], 1.0, 2)
    expected += variance_constancy(layers["b"][0], 1.0, 2, (0, 1, 2))
    np.testing.assert_allclose(total, expected, **FLOAT32)


def test_betas_start_at_one_from_shapes_alone_and_stay_positive() -> None:
    shapes = jax.eval_shape(lambda: {"h": jnp.zeros((8, 3), jnp.bfloat16)})
    raw = initial_betas(shapes)
    assert (raw["h"].shape, raw["h"].dtype) == ((3,), jnp.float32)
    np.testing.assert_allclose(positive_betas(raw)["h"], 1.0, rtol=1e-6)
    assert np.all(np.asarray(positive_betas(jnp.linspace(-87, 87, 175))) > 0)


@pytest.mark.parametrize("beta", [1.0, 1e-9])
def test_constant_channel_costs_one_and_has_gradient_zero(beta: float) -> None:
    """The mean of three values of 1e4 / 3 is rounded: it differs from each of them."""
    x = jnp.full((6, 2), 1e4 / 3)
    value, gradients = jax.value_and_grad(variance_constancy_loss, (0, 1))(x, jnp.full(2, beta), 3)
    assert float(value) == 1.0
    for gradient in gradients:
        assert not np.asarray(gradient).any()


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_broken_sample_matters_only_if_it_is_read(bad: float) -> None:
    x = draw(7, 8, 2)
    assert np.isnan(loss(x.at[3, 0].set(bad), 1.0))
    assert float(loss(x.at[4, 0].set(bad), 1.0)) == float(loss(x, 1.0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_half_types_with_large_offset(dtype: str) -> None:
    x = jnp.asarray(normal(8, 10, 3) * 3 + 500, jnp.dtype(dtype))
    beta = jnp.ones(3, jnp.dtype(dtype))
    value, gradient = jax.value_and_grad(variance_constancy_loss)(x, beta, 5)
    assert (value.dtype, gradient.dtype) == (jnp.float32, x.dtype)
    np.testing.assert_allclose(value, variance_constancy(x, 1.0, 5), **FLOAT32)
