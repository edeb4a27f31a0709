"""`functionalize`: the model's own outputs, from a pure function of plain dicts."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import Scaled, effective, reparametrize
from jaxnorm.nnx import BatchNorm, Functional, functionalize
from tests.draws import draw
from tests.trees import assert_equal

X = draw(0, 8, 6)


class Net(nnx.Module):
    """Running statistics, random state, a list of modules, and a module used twice."""

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


def copies(model: nnx.Module) -> Any:
    """Copies of all variables of a model, random keys as numbers."""
    state = nnx.to_pure_dict(nnx.state(model))
    return jax.tree.map(lambda x: np.array(jax.random.key_data(x) if is_key(x) else x), state)


def without_keys(state: Any) -> Any:
    return jax.tree.map(lambda x: None if is_key(x) else x, state)


@pytest.mark.parametrize("train", [True, False])
def test_three_calls_equal_the_model_s(train: bool) -> None:
    """Outputs, and the statistics and random counters that each call writes."""
    model = net()
    model.train() if train else model.eval()
    apply, params, state = functionalize(net())
    for call in range(3):
        output, state = apply(params, state, X + call, train=train, shift=2.0)
        np.testing.assert_array_equal(output, model(X + call, shift=2.0))
    after = functionalize(model)
    assert_equal(without_keys(state), without_keys(after.state))
    assert_equal(params, after.params)


def test_the_model_is_untouched() -> None:
    model = net()
    before, mode = copies(model), (model.drop.deterministic, model.norm.use_running_average)
    apply, params, state = functionalize(model)
    apply(jax.tree.map(lambda x: x + 1, params), state, X, train=True)
    apply(params, state, X, train=False)
    assert_equal(copies(model), before)
    assert (model.drop.deterministic, model.norm.use_running_average) == mode


def test_the_result_depends_on_the_arguments_alone() -> None:
    """Draws are a function of the state; evaluation draws nothing."""
    apply, params, state = functionalize(net())
    first, after = apply(params, state, X, train=True)
    np.testing.assert_array_equal(apply(params, state, X, train=True)[0], first)
    assert np.abs(apply(params, after, X, train=True)[0] - first).max() > 0.1
    output, evaluated = apply(params, after, X, train=False)
    assert_equal(without_keys(evaluated), without_keys(after))
    np.testing.assert_array_equal(apply(params, evaluated, X, train=False)[0], output)


def test_params_hold_a_shared_module_once() -> None:
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


class Frozen(nnx.Module):
    """A frozen BatchNorm before another one and a dropout."""

    def __init__(self, kind: Any) -> None:
        rngs = nnx.Rngs(0)
        self.frozen = kind(6, use_running_average=True, rngs=rngs)
        self.norm, self.drop = kind(6, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.drop(self.norm(self.frozen(x)))


@pytest.mark.parametrize("kind", [BatchNorm, nnx.BatchNorm])
def test_a_frozen_batch_norm_stays_frozen_in_training(kind: Any) -> None:
    apply, params, state = functionalize(Frozen(kind))
    output, after = apply(params, state, 3 * X + 1, train=True)
    assert_equal(after["frozen"], state["frozen"])
    assert np.abs(after["norm"]["mean"]).max() > 0.02
    assert (output == 0).any()  # by the dropout
    quiet, after = apply(params, state, 3 * X + 1, train=False)
    np.testing.assert_allclose(quiet, 3 * X + 1, rtol=1e-4)
    assert_equal(without_keys(after), without_keys(state))


@pytest.mark.parametrize("kind", [BatchNorm, nnx.BatchNorm])
def test_freezing_follows_the_attribute(kind: Any) -> None:
    """True freezes, whoever set it; False and Flax's None follow the mode."""
    norm, other = kind(6, rngs=nnx.Rngs(0)), kind(6, rngs=nnx.Rngs(0))
    model = nnx.Sequential(nnx.Linear(6, 6, rngs=nnx.Rngs(1)), norm, other)
    for value, is_frozen in ((False, False), (None, False), (True, True)):
        norm.use_running_average = value
        apply, params, state = functionalize(model)
        _, after = apply(params, state, X, train=True)
        change = after["layers"][1]["mean"] - state["layers"][1]["mean"]
        assert bool((change == 0).all()) is is_frozen


def test_training_after_an_evaluation_warns() -> None:
    """All layers are frozen then, and nothing tells whether their owner wants that."""
    model = net()
    model.eval()
    apply, params, state = functionalize(model)
    apply(params, state, X, train=False)
    with pytest.warns(UserWarning, match=r"BatchNorm.*model\.train\(\)"):
        apply(params, state, X, train=True)
    model.train()
    apply, params, state = functionalize(model)
    apply(params, state, X, train=True)


def test_params_and_state_are_written_back_in_one_call() -> None:
    """The trained model evaluates with its own running statistics, and with plain kernels."""
    model = net()
    apply, params, state = functionalize(model)
    raw = reparametrize(params, Scaled)
    for call in range(3):
        _, state = apply(effective(raw), state, 2 * X + call, train=True)
    raw = jax.tree.map(lambda x: 1.5 * x, raw)
    nnx.update(model, effective(raw), state)
    model.eval()
    np.testing.assert_array_equal(model(X), apply(effective(raw), state, X, train=False)[0])
    assert np.abs(model.norm.mean[...]).max() > 0.02


LAYERS = 12


def layers() -> nnx.Sequential:
    """Twelve layers by number; as strings, 10 and 11 come before 2."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(*(nnx.Linear(6, 6, rngs=rngs) for _ in range(LAYERS)))


@pytest.fixture(scope="module")
def deep() -> Functional:
    return functionalize(layers())


def output_of(functional: Functional, params: Any) -> Any:
    return functional.apply(params, functional.state, X, train=False)[0]


def with_string_keys(tree: Any) -> Any:
    """Tree as a checkpoint library restores it without a target: every key is a string."""
    if not isinstance(tree, dict):
        return np.asarray(tree)
    return {str(key): with_string_keys(value) for key, value in sorted(tree.items(), key=str)}


def test_string_keys_and_nnx_state_fit(deep: Functional) -> None:
    """Leaves match by path: by order, layer 10 would be taken for layer 2."""
    strings = with_string_keys(deep.params)
    assert list(strings["layers"])[:3] == ["0", "1", "10"]
    for params in (strings, nnx.state(layers(), nnx.Param)):
        np.testing.assert_array_equal(output_of(deep, params), output_of(deep, deep.params))


#: An edit of the layers, and the paths that the message names.
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "renamed": (
        lambda layers: layers.update({20: layers.pop(2)}),
        r"layers/2/bias.*layers/2/kernel.*layers/20/bias",
    ),
    "nested": (
        lambda layers: layers.update({0: {"inner": layers[0]}}),
        r"layers/0/bias.*layers/0/inner/bias",
    ),
    "missing": (
        lambda layers: [layers.pop(number) for number in range(3)],
        r"layers/0/bias.*layers/0/kernel.*layers/1/bias.* 3 more",
    ),
    "one more": (lambda layers: layers.update({12: layers[0]}), "layers/12/bias"),
    "another shape": (
        lambda layers: layers[5].update(kernel=jnp.ones((6, 4))),
        r"layers/5/kernel.*\(6, 4\).*\(6, 6\)",
    ),
    "another type": (
        lambda layers: layers[5].update(bias=jnp.ones(6, jnp.int32)),
        r"layers/5/bias.*int32.*float32",
    ),
    "another width": (
        lambda layers: layers[5].update(bias=jnp.ones(6, jnp.bfloat16)),
        r"layers/5/bias.*bfloat16.*mixed_precision=True",
    ),
    "raw parameters": (
        lambda layers: layers[5].update(kernel=Scaled.from_kernel(layers[5]["kernel"], (-2,))),
        r"layers/5/kernel.*Scaled.*effective\(params\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_parameters_are_refused(deep: Functional, name: str) -> None:
    edit, named = REFUSED[name]
    params = jax.tree.map(lambda x: x, deep.params)
    edit(params["layers"])
    with pytest.raises(ValueError, match=named):
        output_of(deep, params)


def test_params_and_state_in_each_others_place_are_refused() -> None:
    apply, params, state = functionalize(net())
    with pytest.raises(ValueError, match=r"params.*again/bias"):
        apply(state, params, X, train=True)
    with pytest.raises(ValueError, match=r"state.*norm/mean"):
        apply(params, {"drop": state["drop"]}, X, train=True)


class Counting(nnx.Module):
    """Holds numbers that are no arrays of JAX yet, and sows a value."""

    def __init__(self) -> None:
        self.gain, self.shift = nnx.Param(2.0), nnx.Param(np.zeros((1, 6)))
        self.calls, self.rows = nnx.Variable(0), nnx.Variable(np.zeros((), np.int64))

    def __call__(self, x: Any) -> Any:
        self.calls[...] = self.calls[...] + 1
        self.rows[...] = self.rows[...] + len(x)
        self.sown = nnx.Intermediate(x)  # as sow does
        return x * self.gain[...] + self.shift[...]


def test_numbers_that_become_arrays_and_sown_values_fit_the_next_step() -> None:
    """Each call sows its own value, and ignores that of the call before."""
    apply, params, state = functionalize(Counting())
    step = jax.jit(lambda params, state, x: apply(params, state, x, train=True))
    for count in (1, 2, 3):
        value, state = step(params, state, X * count)
        params = jax.tree.map(lambda x: 2 * jnp.asarray(x), params)
        np.testing.assert_allclose(value, 2**count * count * X, rtol=1e-6)
        np.testing.assert_array_equal(state["sown"], X * count)
        assert (int(state["calls"]), int(state["rows"])) == (count, count * len(X))


def test_mixed_precision_takes_any_float_and_no_integer() -> None:
    apply, params, state = functionalize(nnx.Linear(6, 2, rngs=nnx.Rngs(0)), mixed_precision=True)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    output, _ = apply(half, state, X.astype(jnp.bfloat16), train=True)
    assert output.dtype == jnp.bfloat16
    with pytest.raises(ValueError, match=r"kernel.*int32"):
        apply(jax.tree.map(lambda x: x.astype(jnp.int32), params), state, X, train=True)
