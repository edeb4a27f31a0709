"""Rows of shaped activations and orthogonal weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxnorm as jn
from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.models.registry import build
from experiments.training.state import run_keys
from experiments.training.trainer import make_trainer, network_of
from jaxnorm.nnx import functionalize
from tests.experiments.toy import SETTINGS, start, toy_dataset

CONFIG = SETTINGS.changed(model="mlp", activation="tanh")


@pytest.mark.slow
def test_a_step_of_tat_is_that_of_the_library():
    """The complete user code: shaped activation, orthogonal kernels, any optimizer."""
    method, x = METHODS["tat"], jnp.asarray(toy_dataset().X_train[:4])
    trainer = make_trainer(method, CONFIG, toy_dataset())
    functional = trainer.context.functional
    network = network_of(method, CONFIG, x.shape[1:], 3, run_keys(jnp.uint32(0))[0])
    params = functionalize(network).params
    f = jn.shaping.shaped(jnp.tanh, depth=2)

    def apply(params, x):
        for layer in params["blocks"].values():
            x = f(x @ layer["linear"]["kernel"] + layer["linear"]["bias"][None])
        return x @ params["head"]["kernel"] + params["head"]["bias"][None]

    params = jn.orthogonal_init(jn.read(apply, params, x))
    expected = start(trainer, 0).params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), params, expected)
    logits = functional.apply(expected, functional.state, x, train=True)[0]
    np.testing.assert_allclose(apply(params, x), logits, atol=1e-5)


@pytest.mark.kept("relu")
@pytest.mark.parametrize(
    ("activation", "gain"), [("relu", 2.0), ("tanh", 1.0), ("selu", 1.0)], ids=str
)
def test_orthogonal_weights_keep_the_variance_of_their_inputs(activation, gain):
    config = SETTINGS.changed(activation=activation)
    params = start(make_trainer(METHODS["orthogonal"], config, toy_dataset()), 0).params
    kernel = np.asarray(params["blocks"][1]["linear"]["kernel"])
    np.testing.assert_allclose(kernel.T @ kernel, gain * np.eye(8), atol=1e-5)


def test_the_depth_is_read_off_the_network(monkeypatch):
    depths = []

    def depth_of(model, shape):
        config = CONFIG.changed(model=model, channels=2)
        nnx.eval_shape(lambda: build(config, shape, 3, nnx.Rngs(0), shaped="dks"))
        return depths[-1]

    def shaped(activation, depth, method):
        depths.append(depth(0.0, lambda value: value + 1))
        return activation

    monkeypatch.setattr("experiments.models.registry.shaped", shaped)
    assert depth_of("mlp", (6,)) == 2
    assert depth_of("cnn9", (8, 8, 3)) == 9
    # A sum of a stream and a branch of two activations adds their mean; three streams have one.
    assert depth_of("resnet18", (8, 8, 3)) == 1 + 5 * 1 + 3 * 1.5


def test_networks_without_a_shape_are_refused():
    shallow = SETTINGS.changed(activation="relu")
    with pytest.raises(UserError, match=r"tat cannot shape relu for mlp: .*smaller"):
        make_trainer(METHODS["tat"], shallow, toy_dataset())
    tokens = Dataset(*[np.zeros((8, 4), np.int32)] * 4, "tokens", 3)
    config = CONFIG.changed(model="transformer", width=8, batch_size=8)
    with pytest.raises(UserError, match="attention"):
        make_trainer(METHODS["dks"], config, tokens)
