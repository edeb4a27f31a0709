"""`PopulationNorm` keeps what a large sample says; `Standardization` stands after an activation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import BatchNorm, PopulationNorm, Standardization, functionalize
from tests.nnx.batch_norm_oracle import FULL, batch_norm
from tests.trees import assert_equal

WIDTH, EPSILON = 4, 1e-3
#: Sums over up to 2000 values of order one to ten, pairwise: some thirty roundings of 6e-8.
FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}


def draw(seed: int, *shape: int, shift: float = 0.0) -> jax.Array:
    return jnp.asarray(2 * np.random.default_rng(seed).normal(size=shape) + shift, jnp.float32)


class Net(nnx.Module):
    """Two layers: the second's population is what the first makes of it, refreshed."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.first = PopulationNorm(WIDTH, epsilon=EPSILON, rngs=rngs)
        self.dense = nnx.Linear(WIDTH, 3, rngs=rngs)
        self.second = PopulationNorm(3, epsilon=EPSILON, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(nnx.relu(self.dense(self.first(x))))


SAMPLE = draw(1, 2000, WIDTH, shift=3.0)


def normalized(x: Any, sample: Any) -> Any:
    wide, population = np.asarray(x, np.float64), np.asarray(sample, np.float64)
    return (wide - population.mean(0)) / np.sqrt(population.var(0) + EPSILON)


def numpy_net(params: Any, x: Any) -> Any:
    """Gamma = 1 and beta = 0 in both layers."""
    weights, bias = (np.asarray(params["dense"][name], np.float64) for name in ("kernel", "bias"))
    hidden = [np.maximum(normalized(a, SAMPLE) @ weights + bias, 0) for a in (x, SAMPLE)]
    return normalized(*hidden)


def test_one_refresh_makes_a_whole_model_the_populations_and_minibatches_leave_it() -> None:
    model = Net()
    refresh = functionalize(nnx.view(model, refresh=True)).apply
    apply, params, state = functionalize(model)
    output, state = refresh(params, state, SAMPLE, train=True)
    np.testing.assert_allclose(output, numpy_net(params, SAMPLE), **FLOAT32)
    for train in (True, False):
        for seed in (2, 3):
            x = draw(seed, 5, WIDTH, shift=-1.0)
            output, after = apply(params, state, x, train=train)
            np.testing.assert_allclose(output, numpy_net(params, x), **FLOAT32)
            assert_equal(after, state)
    assert not model.first.refresh
    assert not np.asarray(model.first.mean[...]).any()


def test_before_the_first_refresh_it_normalizes_nothing() -> None:
    x = draw(4, 6, WIDTH)
    np.testing.assert_array_equal(PopulationNorm(WIDTH, epsilon=0.0)(x), x)


@pytest.mark.parametrize("refresh", [True, False])
def test_the_statistics_are_constants_of_the_gradient(refresh: bool) -> None:
    """dy/dx = gamma / sqrt(var + eps), and gamma's gradient is of what the population normalized.

    Both while refreshing and between: the oracle has no part through the sample.
    """
    layer = PopulationNorm(WIDTH, epsilon=EPSILON)
    nnx.view(layer, refresh=True)(SAMPLE)
    layer.scale[...], layer.bias[...] = draw(5, WIDTH), draw(6, WIDTH)
    apply, params, state = functionalize(nnx.view(layer, refresh=refresh))
    x, cotangent = SAMPLE if refresh else draw(7, 6, WIDTH), draw(8, 2000, WIDTH)
    cotangent = cotangent[: len(x)]

    def loss(x: jax.Array, params: Any) -> jax.Array:
        return (cotangent * apply(params, state, x, train=True)[0]).sum()

    by_x, by_params = jax.jit(jax.grad(loss, (0, 1)))(x, params)
    std = np.sqrt(np.asarray(SAMPLE, np.float64).var(0) + EPSILON)
    g = np.asarray(cotangent, np.float64)
    np.testing.assert_allclose(by_x, g * np.asarray(params["scale"], np.float64) / std, **FLOAT32)
    # Sums of 2000 products of size 1 to 10, in float32: 2000 roundings at most of 6e-8 of them.
    loose = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(by_params["scale"], (g * normalized(x, SAMPLE)).sum(0), **loose)
    np.testing.assert_allclose(by_params["bias"], g.sum(0), **loose)


def test_views_reach_their_own_layers_and_misspelt_ones_are_refused() -> None:
    both = nnx.Sequential(PopulationNorm(3), BatchNorm(3))
    view = nnx.view(both, refresh=True, use_running_average=True)
    assert view.layers[0].refresh
    assert view.layers[1].use_running_average
    assert view.layers[1].update_statistics
    with pytest.raises(ValueError, match="refesh"):
        nnx.view(both, refesh=True)


@pytest.mark.parametrize("groups", [1, 2])
def test_standardization_after_an_activation(groups: int) -> None:
    """The next layer's inputs have mean 0 and variance 1; it has nothing to learn."""
    layer = Standardization(WIDTH, epsilon=EPSILON, momentum=0.5, groups=groups)
    apply, params, state = functionalize(nnx.Sequential(jax.nn.sigmoid, layer))
    assert not jax.tree.leaves(params)
    x, cotangent = draw(9, 20, WIDTH), draw(10, 20, WIDTH)

    def loss(x: jax.Array) -> Any:
        output, after = apply(params, state, x, train=True)
        return (cotangent * output).sum(), (output, after)

    by_x, (output, after) = jax.jit(jax.grad(loss, has_aux=True))(x)
    a = 1 / (1 + np.exp(-np.asarray(x, np.float64)))
    wanted = batch_norm(a, np.ones(WIDTH), np.zeros(WIDTH), cotangent, FULL, groups, EPSILON)
    np.testing.assert_allclose(output, wanted.output, **FLOAT32)
    np.testing.assert_allclose(by_x, wanted.by_x * a * (1 - a), **FLOAT32)
    running = after["layers"][1]
    np.testing.assert_allclose(running["mean"], 0.5 * a.mean(0), **FLOAT32)
    evaluated, _ = apply(params, after, x, train=False)
    kept = (np.asarray(running[name], np.float64) for name in ("mean", "var"))
    mean, variance = kept
    np.testing.assert_allclose(evaluated, (a - mean) / np.sqrt(variance + EPSILON), **FLOAT32)
