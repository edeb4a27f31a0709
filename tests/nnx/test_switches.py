"""What the switches of normalization layers change, and nothing else; populations that refresh."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import BatchNorm, PopulationNorm, Standardization, Statistic, functionalize
from tests.draws import normal
from tests.nnx.batch_norm import EPSILON, WIDTH
from tests.trees import assert_equal

FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}
X = jnp.asarray(normal(0, 16, 3) * 2 + 1, jnp.float32)
SWITCHES = ("use_running_average", "update_statistics", "train_affine")


def model() -> nnx.Sequential:
    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), BatchNorm(4, rngs=rngs), nnx.relu)


def run(of: nnx.Module, train: bool = True) -> tuple[Any, Any, Any, bool]:
    """The output, the gradients of the layer and of the norm, and whether statistics moved."""
    apply, params, state = functionalize(of)

    def loss(params: Any) -> Any:
        output, after = apply(params, state, X, train=train)
        return jnp.square(output).sum(), (output, after)

    gradients, (output, after) = jax.grad(loss, has_aux=True)(params)
    both = zip(*map(jax.tree.leaves, (after, state)), strict=True)
    moved = {bool((a != b).any()) for a, b in both}
    assert len(moved) == 1
    return output, *(gradients["layers"][place] for place in (0, 1)), moved.pop()


#: Views, whether the model is called in training, and what then holds: whether statistics follow,
#: the affine part has a gradient, and the batch's statistics are used.
VIEWS: dict[str, tuple[dict[str, bool], bool, tuple[bool, bool, bool]]] = {
    "training": ({}, True, (True, True, True)),
    "evaluation": ({}, False, (False, True, False)),
    "statistics stay": ({"update_statistics": False}, True, (False, True, True)),
    "affine part stays": ({"train_affine": False}, True, (True, False, True)),
    "both, in evaluation": (dict.fromkeys(SWITCHES[1:], False), False, (False, False, False)),
    "train decides": ({"use_running_average": True}, True, (True, True, True)),
    "train decides too": ({"use_running_average": False}, False, (False, True, False)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_switch_changes_one_thing(name: str) -> None:
    view, train, (follows, trains, batch) = VIEWS[name]
    output, by_layer, by_norm, moved = run(nnx.view(model(), **view), train)
    assert moved == follows
    assert any(leaf.any() for leaf in jax.tree.leaves(by_norm)) == trains
    wanted = run(model(), batch)
    assert_equal((output, by_layer), wanted[:2])
    assert np.abs(run(model(), not batch)[0] - output).max() > 0.1
    if trains:
        assert_equal(by_norm, wanted[2])


def test_views_reach_their_own_layers_and_misspelt_ones_are_refused() -> None:
    both = nnx.Sequential(PopulationNorm(3), BatchNorm(3))
    view = nnx.view(both, refresh=True, use_running_average=True)
    assert (view.layers[0].refresh, view.layers[1].use_running_average) == (True, True)
    assert view.layers[1].update_statistics
    for misspelt in ("refesh", "use_runing_average"):
        with pytest.raises(ValueError, match=misspelt):
            nnx.view(both, **{misspelt: True})


def test_statistics_have_a_type_of_their_own_and_no_gradient() -> None:
    layer = BatchNorm(3)
    assert sorted(nnx.to_pure_dict(nnx.state(layer, Statistic))) == ["mean", "var"]
    assert sorted(nnx.to_pure_dict(nnx.state(layer, nnx.Param))) == ["bias", "scale"]
    apply, params, state = functionalize(layer)

    def kept(x: jax.Array) -> Any:
        after = apply(params, state, x, train=True)[1]
        return after["mean"].sum() + after["var"].sum()

    assert not np.asarray(jax.grad(kept)(X)).any()


class Net(nnx.Module):
    """Two layers: the second's population is what the first makes of it, refreshed."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.first = PopulationNorm(WIDTH, epsilon=EPSILON, rngs=rngs)
        self.dense = nnx.Linear(WIDTH, 3, rngs=rngs)
        self.second = PopulationNorm(3, epsilon=EPSILON, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(nnx.relu(self.dense(self.first(x))))


SAMPLE = jnp.asarray(2 * normal(1, 2000, WIDTH) + 3, jnp.float32)


def normalized(x: Any, sample: Any) -> Any:
    wide, population = np.asarray(x, np.float64), np.asarray(sample, np.float64)
    return (wide - population.mean(0)) / np.sqrt(population.var(0) + EPSILON)


def test_one_refresh_makes_a_whole_model_the_populations_and_minibatches_leave_it() -> None:
    """Gamma = 1 and beta = 0 in both layers; before the first refresh nothing is normalized."""
    model = Net()
    np.testing.assert_array_equal(PopulationNorm(3, epsilon=0.0)(X), X)
    refresh = functionalize(nnx.view(model, refresh=True)).apply
    apply, params, state = functionalize(model)
    weights, bias = (np.asarray(params["dense"][name], np.float64) for name in ("kernel", "bias"))

    def wanted(x: Any) -> Any:
        hidden = [np.maximum(normalized(a, SAMPLE) @ weights + bias, 0) for a in (x, SAMPLE)]
        return normalized(*hidden)

    output, state = jax.jit(lambda x: refresh(params, state, x, train=True))(SAMPLE)
    np.testing.assert_allclose(output, wanted(SAMPLE), **FLOAT32)
    x = jnp.asarray(normal(2, 5, WIDTH) - 1, jnp.float32)
    for train in (True, False):
        output, after = apply(params, state, x, train=train)
        np.testing.assert_allclose(output, wanted(x), **FLOAT32)
        assert_equal(after, state)
    assert not model.first.refresh
    assert not np.asarray(model.first.mean[...]).any()


@pytest.mark.parametrize("refresh", [True, False])
def test_a_population_s_statistics_are_constants_of_the_gradient(refresh: bool) -> None:
    """dy/dx = gamma / sqrt(var + eps), both while refreshing and between."""
    layer = PopulationNorm(WIDTH, epsilon=EPSILON)
    nnx.view(layer, refresh=True)(SAMPLE)
    layer.scale[...] = jnp.asarray(normal(5, WIDTH), jnp.float32)
    apply, params, state = functionalize(nnx.view(layer, refresh=refresh))
    x = SAMPLE if refresh else jnp.asarray(normal(7, 6, WIDTH), jnp.float32)
    cotangent = normal(8, *x.shape).astype(np.float32)

    def loss(x: jax.Array, params: Any) -> jax.Array:
        return (cotangent * apply(params, state, x, train=True)[0]).sum()

    by_x, by_params = jax.jit(jax.grad(loss, (0, 1)))(x, params)
    std = np.sqrt(np.asarray(SAMPLE, np.float64).var(0) + EPSILON)
    np.testing.assert_allclose(by_x, cotangent * np.float64(params["scale"]) / std, **FLOAT32)
    # Sums of 2000 products of size 1 to 10, in float32: 2000 roundings at most of 6e-8 of them.
    loose = {"rtol": 1e-4, "atol": 1e-3}
    wanted = (cotangent * normalized(x, SAMPLE)).sum(0)
    np.testing.assert_allclose(by_params["scale"], wanted, **loose)
    np.testing.assert_allclose(by_params["bias"], np.float64(cotangent).sum(0), **loose)


def test_standardization_is_batch_normalization_with_nothing_to_learn() -> None:
    layer = Standardization(3, groups=2, epsilon=EPSILON)
    other = BatchNorm(3, groups=2, epsilon=EPSILON, use_scale=False, use_bias=False)
    assert not jax.tree.leaves(nnx.state(layer, nnx.Param))
    assert_equal(layer(X), other(X))
    layer.eval(), other.eval()
    assert_equal(layer(X), other(X))
