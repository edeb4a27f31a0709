"""`functionalize`: the model's own outputs from a pure function of plain dicts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import functionalize
from tests.trees import assert_equal

X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 6)), jnp.float32)


class Net(nnx.Module):
    """Whatever a model may hold: running statistics, random state, lists, a module used twice."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(6, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(5, 5, rngs=rngs) for _ in range(2)])
        self.again = self.blocks[0]

    def __call__(self, x: Any, shift: float = 0.0) -> Any:
        x = self.drop(nnx.relu(self.norm(self.first(x))))
        for block in self.blocks:
            x = block(x)
        return self.again(x) + shift


def net() -> Net:
    return Net(nnx.Rngs(3))


def is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def everything(model: nnx.Module) -> Any:
    """All that a model holds, random state as numbers, in copies."""
    state = nnx.to_pure_dict(nnx.state(model))
    return jax.tree.map(lambda x: np.array(jax.random.key_data(x) if is_key(x) else x), state)


@pytest.mark.parametrize("train", [True, False])
def test_three_calls_are_the_models_own(train: bool) -> None:
    """Outputs, and what the model writes: statistics and random counters, call after call."""
    own = net()
    own.train() if train else own.eval()
    apply, params, state = functionalize(net())
    for call in range(3):
        output, state = apply(params, state, X + call, train=train, shift=2.0)
        np.testing.assert_array_equal(output, own(X + call, shift=2.0))
    written = functionalize(own)
    assert_equal(without_keys(state), without_keys(written.state))
    assert_equal(params, written.params)


def without_keys(state: Any) -> Any:
    return jax.tree.map(lambda x: None if is_key(x) else x, state)


def test_the_model_is_untouched() -> None:
    model = net()
    before, mode = everything(model), (model.drop.deterministic, model.norm.use_running_average)
    apply, params, state = functionalize(model)
    apply(jax.tree.map(lambda x: x + 1, params), state, X, train=True)
    apply(params, state, X, train=False)
    assert_equal(everything(model), before)
    assert (model.drop.deterministic, model.norm.use_running_average) == mode


def test_the_arguments_decide_the_result() -> None:
    """The same state gives the same draw; the next state another; evaluation draws none."""
    apply, params, state = functionalize(net())
    first, after = apply(params, state, X, train=True)
    np.testing.assert_array_equal(apply(params, state, X, train=True)[0], first)
    assert np.abs(apply(params, after, X, train=True)[0] - first).max() > 0.1
    output, evaluated = apply(params, after, X, train=False)
    assert_equal(without_keys(evaluated), without_keys(after))
    np.testing.assert_array_equal(apply(params, evaluated, X, train=False)[0], output)


def test_params_are_the_params_and_a_shared_module_is_held_once() -> None:
    _, params, state = functionalize(net())
    assert sorted(params) == ["again", "blocks", "first", "norm"]
    assert list(params["blocks"]) == [1]
    assert sorted(params["norm"]) == ["bias", "scale"]
    assert sorted(state) == ["drop", "norm"]
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves((params, state)))


def test_a_shared_kernel_gets_both_gradients() -> None:
    """y = x W W with one W: dy/dW = 2 W x for a number."""
    layer = nnx.Linear(
        1, 1, use_bias=False, kernel_init=nnx.initializers.constant(3.0), rngs=nnx.Rngs(0)
    )
    apply, params, state = functionalize(nnx.Sequential(layer, layer))
    x = jnp.full((1, 1), 5.0)
    gradient = jax.grad(lambda p: apply(p, state, x, train=True)[0].sum())(params)
    assert [leaf.item() for leaf in jax.tree.leaves(gradient)] == [2 * 3.0 * 5.0]
