"""Scoring of batch normalization: by statistics estimated anew, not by running ones."""

from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.methods.table import METHODS
from experiments.models import norms
from experiments.papers.states import epochs
from experiments.training.fit import fit
from experiments.training.nonfinite import copied
from experiments.training.state import probe_key
from experiments.training.trainer import make_trainer
from jaxnorm.nnx import BatchNorm, estimate_statistics
from tests.experiments.toy import SETTINGS, toy_dataset

FILE = Path(__file__).with_name("networks_with_momentum.py")


def trained(model="mlp", method="bn", **settings):
    config = SETTINGS.changed(model=model, **{"batch_size": 64, **settings})
    trainer = make_trainer(METHODS[method], config, toy_dataset())
    return trainer, fit(trainer, toy_dataset(), 0)


@cache
def usual():
    return trained()


def pair(library, batch_size):
    names = (f"{FILE}:{library}_{speed}" for speed in ("slow", "fast"))
    return [trained(name, batch_size=batch_size)[1].curve for name in names]


@pytest.mark.kept("16")
@pytest.mark.parametrize("batch_size", [16, 64])
def test_the_momentum_of_a_users_network_does_not_enter_its_results(batch_size):
    slow, fast = pair("flax", batch_size)
    assert slow == fast


@pytest.mark.slow  # Flax's NNX and the built-in layers below are held in each run.
@pytest.mark.usefixtures("standard_promotion")  # Haiku itself promotes.
@pytest.mark.parametrize("library", ["linen", "haiku"])
def test_nor_does_that_of_other_libraries(library):
    slow, fast = pair(library, 16)
    np.testing.assert_allclose(slow, fast, rtol=1e-4)
    assert [entry.test_accuracy for entry in slow] == [entry.test_accuracy for entry in fast]


def test_nor_does_that_of_the_built_in_layers(monkeypatch):
    monkeypatch.setitem(norms.NORMS, "bn", partial(BatchNorm, momentum=0.999))
    _, slow = trained()
    assert slow.curve == usual()[1].curve


def first_layer(run, X):
    layer = run.trained.params["blocks"][0]["linear"]
    return np.float64(X) @ np.float64(layer["kernel"])


def test_statistics_are_those_of_the_training_rows_by_the_final_parameters():
    _, run = usual()
    values, norm = first_layer(run, toy_dataset().X_train), run.trained.model_state["blocks"][0]
    np.testing.assert_allclose(norm["norm"]["mean"], values.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm["norm"]["var"], values.var(0), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [2, 4, 16])
def test_in_small_batches_the_smaller_loss_on_other_rows_decides(batch_size):
    trainer, run = trained(batch_size=batch_size, epochs=1)
    order = jax.random.permutation(probe_key(run.trained, jnp.int32(-1)), 70)
    rows = [jnp.asarray(part)[order] for part in toy_dataset()[:2]]
    X = rows[0][: len(rows[0]) - len(rows[0]) // 4]
    others = [part[len(X) :] for part in rows]
    state, context = run.trained, trainer.context

    def loss(model_state):
        logits, _ = context.functional.apply(state.params, model_state, others[0], train=False)
        return optax.softmax_cross_entropy_with_integer_labels(logits, others[1]).mean()

    estimates = [
        estimate_statistics(context.model, state.params, state.model_state, X, batch_size=size)
        for size in (len(X), batch_size)
    ]
    best = min(estimates, key=loss)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), state.model_state, best)


@pytest.mark.slow
def test_the_order_of_the_rows_decides_little():
    """Rows sorted by class have the statistics of all classes all the same."""
    data, (trainer, run) = toy_dataset(rows=600), trained(batch_size=16, epochs=1)
    sorted_rows = np.argsort(data.y_train, kind="stable")
    states = [
        trainer.settle(copied(run.trained), data.X_train[rows], data.y_train[rows])
        for rows in (np.arange(600), sorted_rows)
    ]
    mixed, by_class = (jax.tree.leaves(state.model_state) for state in states)
    for one, other in zip(mixed, by_class, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.25, atol=0.25)


def test_states_between_epochs_are_settled():
    trainer, run = trained(epochs=2)
    *_, (state, _) = epochs(trainer, toy_dataset(), 0)
    jax.tree.map(np.testing.assert_array_equal, state.model_state, run.trained.model_state)


@pytest.mark.kept("sl")
@pytest.mark.parametrize("method", ["sl", "bn+dropout", "wn+mean-only-bn", "normprop-batch", "pn"])
def test_every_method_with_statistics_settles_them(method):
    trainer, run = trained(method=method, batch_size=16, epochs=1)
    state = run.trained
    arrays = [leaf for leaf in jax.tree.leaves(state.model_state) if leaf.dtype == np.float32]
    old = [np.asarray(leaf) for leaf in arrays]
    # Running statistics of another history end as the same.
    others = jax.tree.map(lambda x: x + 1 if x.dtype == np.float32 else x, state.model_state)
    new = trainer.settle(state._replace(model_state=others), *toy_dataset()[:2]).model_state
    leaves = [leaf for leaf in jax.tree.leaves(new) if leaf.dtype == np.float32]
    assert len(old) > 1
    for before, after in zip(old, leaves, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


def test_ghost_batches_and_microbatches_are_taken_as_in_training():
    for settings, rows in (({"ghost_groups": 4}, 4), ({"accumulate": 2}, 8), ({}, 16)):
        config = SETTINGS.changed(batch_size=16, **settings)
        assert make_trainer(METHODS["bn"], config, toy_dataset()).context.rows_together == rows
