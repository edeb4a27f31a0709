"""`PopulationNorm`: statistics of a large sample, refreshed by a view."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import BatchNorm, PopulationNorm, functionalize
from tests.draws import float32, normal
from tests.nnx.batch_norm import EPSILON, WIDTH
from tests.trees import assert_equal

FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}
SAMPLE = float32(2 * normal(1, 2000, WIDTH) + 3)


class Net(nnx.Module):
    """Two layers: the first one's refresh changes the second one's population."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.first = PopulationNorm(WIDTH, epsilon=EPSILON, rngs=rngs)
        self.dense = nnx.Linear(WIDTH, 3, rngs=rngs)
        self.second = PopulationNorm(3, epsilon=EPSILON, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(nnx.relu(self.dense(self.first(x))))


def normalized(x: Any, sample: Any) -> Any:
    wide, population = np.asarray(x, np.float64), np.asarray(sample, np.float64)
    return (wide - population.mean(0)) / np.sqrt(population.var(0) + EPSILON)


def test_one_refresh_sets_a_whole_model_and_minibatches_leave_it() -> None:
    """Gamma = 1 and beta = 0 in both layers; before the first refresh nothing is normalized."""
    model, x = Net(), float32(normal(2, 5, WIDTH) - 1)
    np.testing.assert_array_equal(PopulationNorm(WIDTH, epsilon=0.0)(x), x)
    refresh = functionalize(nnx.view(model, refresh=True)).apply
    apply, params, state = functionalize(model)
    weights, bias = (np.asarray(params["dense"][name], np.float64) for name in ("kernel", "bias"))

    def expected(x: Any) -> Any:
        hidden = [np.maximum(normalized(a, SAMPLE) @ weights + bias, 0) for a in (x, SAMPLE)]
        return normalized(*hidden)

    output, state = jax.jit(lambda x: refresh(params, state, x, train=True))(SAMPLE)
    np.testing.assert_allclose(output, expected(SAMPLE), **FLOAT32)
    for train in (True, False):
        output, after = apply(params, state, x, train=train)
        np.testing.assert_allclose(output, expected(x), **FLOAT32)
        assert_equal(after, state)
    assert not model.first.refresh
    assert not np.asarray(model.first.mean[...]).any()


@pytest.mark.parametrize("refresh", [True, False])
def test_the_statistics_are_constants_of_the_gradient(refresh: bool) -> None:
    """dy/dx = gamma / sqrt(var + eps), during a refresh and afterwards."""
    layer = PopulationNorm(WIDTH, epsilon=EPSILON)
    nnx.view(layer, refresh=True)(SAMPLE)
    layer.scale[...] = float32(normal(5, WIDTH))
    apply, params, state = functionalize(nnx.view(layer, refresh=refresh))
    x = SAMPLE if refresh else float32(normal(7, 6, WIDTH))
    cotangent = normal(8, *x.shape).astype(np.float32)

    def loss(x: jax.Array, params: Any) -> jax.Array:
        return (cotangent * apply(params, state, x, train=True)[0]).sum()

    by_x, by_params = jax.jit(jax.grad(loss, (0, 1)))(x, params)
    std = np.sqrt(np.asarray(SAMPLE, np.float64).var(0) + EPSILON)
    np.testing.assert_allclose(by_x, cotangent * np.float64(params["scale"]) / std, **FLOAT32)
    # Sums of 2000 products of size 1 to 10, in float32: 2000 roundings at most of 6e-8 of them.
    loose = {"rtol": 1e-4, "atol": 1e-3}
    expected = (cotangent * normalized(x, SAMPLE)).sum(0)
    np.testing.assert_allclose(by_params["scale"], expected, **loose)
    np.testing.assert_allclose(by_params["bias"], np.float64(cotangent).sum(0), **loose)


def test_views_reach_the_layers_that_have_the_option() -> None:
    both = nnx.Sequential(PopulationNorm(3), BatchNorm(3))
    view = nnx.view(both, refresh=True, use_running_average=True)
    assert (view.layers[0].refresh, view.layers[1].use_running_average) == (True, True)
