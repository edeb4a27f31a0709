"""Three separate switches, set on a layer, for a whole model, and under `functionalize`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import BatchNorm, Statistic, functionalize
from tests.trees import assert_equal

X = jnp.asarray(np.random.default_rng(0).normal(size=(16, 3)) * 2 + 1, jnp.float32)
SWITCHES = ("use_running_average", "update_statistics", "train_affine")


def model() -> nnx.Sequential:
    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), BatchNorm(4, rngs=rngs), nnx.relu)


def statistics(of: nnx.Module) -> Any:
    return jax.tree.map(np.array, nnx.to_pure_dict(nnx.state(of, Statistic)))


def run(of: nnx.Module, train: bool = True) -> tuple[Any, Any, Any]:
    """The output, the parameters' gradients, and whether the statistics moved."""
    apply, params, state = functionalize(of)

    def loss(params: Any) -> Any:
        output, after = apply(params, state, X, train=train)
        return jnp.square(output).sum(), (output, after)

    gradients, (output, after) = jax.grad(loss, has_aux=True)(params)
    moved = [
        bool((a != b).any()) for a, b in zip(*map(jax.tree.leaves, (after, state)), strict=True)
    ]
    assert len(set(moved)) == 1
    return output, gradients, moved[0]


def norm_gradient(gradients: Any) -> Any:
    return gradients["layers"][1]


def test_by_default_all_is_as_in_training() -> None:
    output, gradients, moved = run(model())
    assert moved
    assert all(np.abs(leaf).max() > 0.1 for leaf in jax.tree.leaves(norm_gradient(gradients)))
    evaluated, gradients, moved = run(model(), train=False)
    assert not moved
    assert np.abs(evaluated - output).max() > 0.1
    assert np.abs(norm_gradient(gradients)["bias"]).max() > 0.1


def test_statistics_that_do_not_follow_change_nothing_else() -> None:
    output, gradients, moved = run(nnx.view(model(), update_statistics=False))
    assert not moved
    assert_equal((output, gradients), run(model())[:2])


def test_an_affine_part_that_is_not_trained_changes_nothing_else() -> None:
    output, gradients, moved = run(nnx.view(model(), train_affine=False))
    assert moved
    assert not any(leaf.any() for leaf in jax.tree.leaves(norm_gradient(gradients)))
    wanted_output, wanted, _ = run(model())
    assert_equal((output, gradients["layers"][0]), (wanted_output, wanted["layers"][0]))


def test_running_statistics_in_training_are_constants_that_do_not_follow() -> None:
    """dy/dx is gamma / sqrt(var + eps), with no part through the batch."""
    layer = BatchNorm(3, epsilon=0.0)
    layer.var[...] = jnp.asarray([1.0, 4.0, 16.0])
    frozen = nnx.view(layer, use_running_average=True)
    before = statistics(frozen)
    gradient = jax.grad(lambda x: (frozen(x) * X).sum())(X)
    np.testing.assert_allclose(gradient, X / jnp.asarray([[1.0, 2.0, 4.0]]), rtol=1e-6)
    assert_equal(statistics(frozen), before)


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_view_sets_one_switch_of_the_copy_and_shares_the_variables(switch: str) -> None:
    original = model()
    before = [getattr(original.layers[1], name) for name in SWITCHES]
    view = nnx.view(original, **{switch: not getattr(original.layers[1], switch)})
    after = [getattr(view.layers[1], name) for name in SWITCHES]
    assert [a != b for a, b in zip(after, before, strict=True)] == [s == switch for s in SWITCHES]
    assert [getattr(original.layers[1], name) for name in SWITCHES] == before
    view.layers[1].scale[...] = jnp.full(4, 7.0)
    assert original.layers[1].scale[...].tolist() == [7.0] * 4


def test_a_view_of_no_such_switch_is_refused() -> None:
    with pytest.raises(ValueError, match="use_runing_average"):
        nnx.view(model(), use_runing_average=True)


def test_the_call_decides_over_the_layer_and_train_and_eval_set_it() -> None:
    layer = BatchNorm(3)
    batch, running = layer(X), layer(X, use_running_average=True)
    layer.eval()
    np.testing.assert_array_equal(layer(X), running)
    np.testing.assert_allclose(layer(X, use_running_average=False), batch, rtol=1e-6, atol=1e-6)
    layer.train()
    np.testing.assert_allclose(layer(X), batch, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("train", [True, False])
def test_train_of_a_functionalized_model_decides_what_to_normalize_with(train: bool) -> None:
    """Over the view, as `train()` and `eval()` of Flax do; the other switches stay as viewed."""
    output, _, _ = run(nnx.view(model(), use_running_average=train), train)
    np.testing.assert_array_equal(output, run(model(), train)[0])
    _, gradients, moved = run(nnx.view(model(), update_statistics=False, train_affine=False), train)
    assert not moved
    assert not any(leaf.any() for leaf in jax.tree.leaves(norm_gradient(gradients)))


def test_statistics_have_a_type_of_their_own_and_no_gradient() -> None:
    layer = BatchNorm(3)
    assert sorted(nnx.to_pure_dict(nnx.state(layer, Statistic))) == ["mean", "var"]
    assert sorted(nnx.to_pure_dict(nnx.state(layer, nnx.Param))) == ["bias", "scale"]
    apply, params, state = functionalize(layer)

    def kept(x: jax.Array) -> Any:
        after = apply(params, state, x, train=True)[1]
        return after["mean"].sum() + after["var"].sum()

    assert not np.asarray(jax.grad(kept)(X)).any()
