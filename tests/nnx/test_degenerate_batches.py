"""Constant units, single samples and broken values, as the layers' docstrings define them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import BatchNorm, PopulationNorm, functionalize
from tests.draws import draw

EPSILONS = pytest.mark.parametrize("epsilon", [1e-5, 0.0])
KINDS = pytest.mark.parametrize("kind", [BatchNorm, PopulationNorm])
GOOD, COTANGENT = draw(0, 64, 3), draw(1, 64, 3)
#: Values that break a unit; the square of the last one overflows.
BROKEN = pytest.mark.parametrize("bad", [np.inf, np.nan, 1e30])
#: Constant units: 7.3 is rounded, 1e4 too in sums, and 0 has no scale at all.
CONSTANTS = jnp.asarray([[7.3, 1e4, 0.0]])
BETA = 2.0


def refreshing(kind: Any, **options: Any) -> Any:
    """Layer that takes its statistics from the batch of the call."""
    layer = kind(3, **options)
    layer.refresh = True
    return layer


def output_and_gradient(layer: Any, x: jax.Array) -> tuple[Any, Any]:
    """Output with beta set, and gradient for a cotangent that differs between samples."""
    if layer.bias is not None:
        layer.bias[...] = jnp.full(3, BETA)
    apply, params, state = functionalize(layer)

    def loss(x: jax.Array) -> Any:
        output, _ = apply(params, state, x, train=True)
        return (COTANGENT[: len(x)] * output).sum(), output

    gradient, output = jax.jit(jax.grad(loss, has_aux=True))(x)
    return output, gradient


@KINDS
@EPSILONS
@pytest.mark.parametrize("samples", [1, 7, 64])
def test_a_constant_unit_becomes_beta(samples: int, epsilon: float, kind: Any) -> None:
    """Exactly: x - mean is zero to the bit. All units of a batch of one sample are constant.

    Through the batch's mean a constant unit hands on the cotangent less its mean.
    """
    x = jnp.tile(CONSTANTS, (samples, 1))
    output, gradient = output_and_gradient(refreshing(kind, epsilon=epsilon), x)
    np.testing.assert_array_equal(output, np.full((samples, 3), BETA))
    assert np.isfinite(gradient).all()
    g = np.asarray(COTANGENT[:samples], np.float64)
    expected = (g if kind is PopulationNorm else g - g.mean(0)) / (np.sqrt(epsilon) or 1)
    if epsilon:
        # The variance of 7 values of 1e4 is not 0 but a squared rounding, 1e-6.
        np.testing.assert_allclose(gradient, expected, rtol=0.1, atol=1e-3)


@pytest.mark.parametrize(("epsilon", "factor"), [(0.25, 2.0), (0.0, 1.0)])
def test_without_a_mean_a_constant_unit_is_divided_by_epsilon(
    epsilon: float, factor: float
) -> None:
    x = jnp.tile(CONSTANTS, (64, 1))
    layer = BatchNorm(3, use_mean=False, epsilon=epsilon, use_bias=False)
    output, gradient = output_and_gradient(layer, x)
    np.testing.assert_allclose(output, factor * x, rtol=1e-6)
    assert np.isfinite(gradient).all()


@KINDS
@pytest.mark.parametrize("options", [{}, {"use_scale": False, "use_bias": False}])
def test_a_variance_that_overflows_shows_in_its_unit_alone(kind: Any, options: Any) -> None:
    """Divided by infinity, the unit would be beta."""
    layer = refreshing(kind, **options)
    output = layer(GOOD * jnp.asarray([[1.0, 1e25, 1.0]]))
    assert np.isnan(output).all(0).tolist() == [False, True, False]
    expected = refreshing(kind, **options)(GOOD)
    np.testing.assert_allclose(output[:, ::2], expected[:, ::2], rtol=1e-6, atol=1e-6)
    if kind is BatchNorm:
        assert (float(layer.mean[...][1]), float(layer.var[...][1])) == (0.0, 1.0)


@BROKEN
def test_running_statistics_survive_a_broken_batch(bad: float) -> None:
    """The broken unit's stay, the others' follow; a population's break until the next refresh."""
    layer, good = BatchNorm(3), BatchNorm(3)
    layer(GOOD + 1), good(GOOD + 1)
    before = np.array(layer.mean[...])
    layer(GOOD.at[5, 1].set(bad)), good(GOOD)
    for statistic, expected in ((layer.mean, good.mean), (layer.var, good.var)):
        np.testing.assert_allclose(statistic[...][::2], expected[...][::2], rtol=1e-6)
        assert np.isfinite(statistic[...]).all()
    assert layer.mean[...][1] == before[1]
    population = PopulationNorm(3)
    view = nnx.view(population, refresh=True)
    view(GOOD.at[5, 1].set(bad))
    assert np.isnan(population(GOOD)).any(0).tolist() == [False, True, False]
    view(GOOD)
    assert np.isfinite(population(GOOD)).all()


@KINDS
def test_statistics_do_not_follow_an_empty_batch(kind: Any) -> None:
    layer = refreshing(kind)
    assert layer(GOOD[:0]).shape == (0, 3)
    assert (layer.mean[...].tolist(), layer.var[...].tolist()) == ([0.0] * 3, [1.0] * 3)
