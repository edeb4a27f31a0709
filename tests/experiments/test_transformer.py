"""The transformer for characters: causality, and training by methods with traced layouts."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.models.dynamic import DynamicErf
from experiments.models.sizes import NetworkSizes
from experiments.models.style import Style
from experiments.models.transformer import Transformer
from experiments.training.fit import fit
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm import constraint_drift

LENGTH, TOKENS = 6, 5
CONFIG = Config(model="transformer", depth=1, width=8, epochs=4, batch_size=16, learning_rate=0.1)

pytestmark = pytest.mark.usefixtures("standard_promotion")


@functools.cache
def counting() -> Dataset:
    """Makes sequences that count upwards from anywhere, modulo five."""
    first = np.random.default_rng(0).integers(0, TOKENS, 80)
    rows = ((first[:, None] + np.arange(LENGTH + 1)) % TOKENS).astype(np.int32)
    X, y = rows[:, :-1], rows[:, 1:]
    return Dataset(X[:64], y[:64], X[64:], y[64:], "counting", TOKENS)


@functools.cache
def trainer(name: str) -> Trainer:
    return make_trainer(METHODS[name], CONFIG, counting())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ln", "derf", "cwo", "lcw", "hyperball"])
def test_it_learns_to_count(name: str) -> None:
    run = fit(trainer(name), counting(), 0)
    assert run.curve[-1].train_loss < run.curve[0].train_loss
    assert np.isfinite(run.curve[-1].test_loss)


@pytest.mark.kept("rms", "none")
@pytest.mark.parametrize("name", ["none", "ln", "rms", "dyt", "cwo-centre-sphere", "ngpt"])
def test_narrow_weights_make_narrow_activations(name: str) -> None:
    """Tokens are integers, so only the weights determine the type."""
    functional = trainer(name).context.functional

    def forward(params: Any, tokens: Any) -> Any:
        weights = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        return functional.apply(weights, functional.state, tokens, train=True)[0]

    tokens = jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)
    program = jax.make_jaxpr(forward)(functional.params, tokens)
    assert program.out_avals[0].dtype == jnp.bfloat16
    products = [each for each in program.eqns if each.primitive.name == "dot_general"]
    assert {own.aval.dtype for each in products for own in each.invars} == {jnp.bfloat16.dtype}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ln", "dyt"])
def test_no_position_sees_those_after_it(name: str) -> None:
    subject = trainer(name)
    state = subject.init(np.uint32(0), counting().X_train)
    weights = subject.method.weights(state.params, state.method_state)

    def logits(X: Any) -> jax.Array:
        return subject.context.functional.apply(weights, state.model_state, X, train=False)[0]

    X = jnp.asarray(counting().X_train[:4])
    changed = X.at[:, 3].set((X[:, 3] + 1) % TOKENS)
    before, after = np.asarray(logits(X)), np.asarray(logits(changed))
    np.testing.assert_allclose(after[:, :3], before[:, :3], rtol=1e-5, atol=1e-6)
    assert (abs(after[:, 3:] - before[:, 3:]).max(-1) > 1e-4).all()


@pytest.mark.slow
def test_attention_s_kernels_have_the_axes_that_it_contracts_and_keep_to_the_set() -> None:
    subject = trainer("cwo")
    run = fit(subject, counting(), 0)
    axes = subject.context.kernels(run.state.params)["blocks"][0]
    assert {name: axes["attention"][name]["kernel"] for name in ("query", "key", "value")} == (
        dict.fromkeys(("query", "key", "value"), (-3,))
    )
    assert axes["attention"]["out"]["kernel"] == (-3, -2)
    assert axes["first"]["kernel"] == axes["second"]["kernel"] == (-2,)
    assert subject.context.kernels(run.state.params)["embedding"]["embedding"] is None
    drift = constraint_drift(run.state.params, layout=subject.layout)
    assert max(map(float, drift.values())) < 1e-5


@pytest.mark.slow
def test_without_a_normalizer_depth_does_not_decide_how_far_the_tokens_grow() -> None:
    def growth(depth: int, **options: float) -> float:
        sizes = NetworkSizes((LENGTH,), TOKENS, depth, 32, 1)
        network = Transformer(sizes, Style(), nnx.Rngs(0), **options)
        x = before = jax.random.normal(jax.random.key(1), (8, LENGTH, 32))
        for block in network.blocks:
            x = block(x, nnx.make_causal_mask(x[..., 0]))
        return float((x**2).mean() / (before**2).mean())

    # With factors of 1 a block adds c of what there is, and sixteen have (1 + c)^16 of it.
    assert growth(1) > 1.5
    assert growth(16) < 2 * growth(1)
    assert growth(16, factor=1.0) > growth(1) ** 8


def test_derf_is_the_error_function_of_a_shifted_line() -> None:
    layer = DynamicErf(3)
    values = {"alpha": 0.7, "shift": -0.3, "scale": [1.0, 2.0, -1.0], "bias": [0.0, 0.5, 1.0]}
    for name, value in values.items():
        setattr(layer, name, nnx.Param(jnp.asarray(value, jnp.float32)))
    x = np.random.default_rng(0).normal(0, 3, (4, 3))
    expected = np.vectorize(math.erf)(0.7 * x - 0.3) * values["scale"] + values["bias"]
    np.testing.assert_allclose(layer(jnp.float32(x)), expected, rtol=1e-5, atol=1e-6)


def test_the_characters_are_python_s_own() -> None:
    one, same, other = (load("python", seed) for seed in (0, 0, 1))
    assert one.X_train.shape == one.y_train.shape == (8192, 64)
    np.testing.assert_array_equal(one.X_train[:, 1:], one.y_train[:, :-1])
    np.testing.assert_array_equal(one.X_test, same.X_test)
    assert not np.array_equal(one.X_test, other.X_test)
    assert load("python", 0, 100).X_train.shape == (100, 64)
    assert 0 <= one.X_train.min() <= one.X_train.max() < one.num_classes == 96


def test_what_it_cannot_take_is_told() -> None:
    with pytest.raises(UserError, match="got --width 6; wanted one that 4 divides"):
        make_trainer(METHODS["ln"], CONFIG.changed(width=6), counting())
