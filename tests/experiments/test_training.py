"""The training loop: scan and loop agree, nothing compiles twice, evaluation has no noise."""

import logging
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.augmentation.images import pad_crop_flip
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import (
    EpochPlan,
    Stepwise,
    batch_at,
    batch_order,
    epoch_keys,
)
from experiments.training.evaluate import make_evaluate
from experiments.training.fit import fit
from experiments.training.state import Batch, row_keys
from experiments.training.trainer import make_trainer
from jaxnorm import clean_parameters, effective
from tests.experiments.parallel import assert_same
from tests.experiments.toy import SETTINGS, start, toy_dataset, toy_trainer


@pytest.fixture(scope="module")
def cwo():
    return toy_trainer("cwo")


@pytest.fixture(scope="module")
def bn():
    return toy_trainer("bn")


def test_an_epoch_is_a_loop_of_steps(bn):
    """Both runners agree: scanned, and step by step."""
    trainer, data = bn, toy_dataset()
    state, step = start(trainer, 7), AheadOfTime(trainer.step)
    losses = []
    for index, rows in enumerate(np.asarray(batch_order(state, 70, 16))):
        keys = row_keys(state, jnp.int32(index), 16)
        state, metrics = step(state, Batch(data.X_train[rows], data.y_train[rows], keys))
        losses.append(float(metrics.loss))
    stepwise = Stepwise(EpochPlan(trainer.step, 16))
    for epoch in (trainer.epoch, stepwise):
        after, metrics = epoch(start(trainer, 7), *data[:2])
        assert_same(after._replace(epoch=state.epoch), state, 1e-5, 1e-6)
        assert float(metrics.loss) == pytest.approx(np.mean(losses), rel=1e-5)
        assert int(after.epoch) == 1
    assert stepwise.compilations == 1


def test_batches_cover_the_rows_in_a_new_order_each_epoch(cwo):
    state = start(cwo, 0)
    first = np.asarray(batch_order(state, 70, 16))
    assert first.shape == (4, 16)
    assert len(np.unique(first)) == 64
    again = np.asarray(batch_order(state, 70, 16))
    later = np.asarray(batch_order(state._replace(epoch=state.epoch + 1), 70, 16))
    other = np.asarray(batch_order(start(cwo, 1), 70, 16))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, later)
    assert not np.array_equal(first, other)


def test_no_second_compilation_for_another_seed_or_epoch(cwo, caplog):
    fit(cwo, toy_dataset(0), 0)
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, logger="jax"):
        fit(cwo, toy_dataset(1), 1)
    assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
    assert (cwo.init.compilations, cwo.epoch.compilations, cwo.evaluate.compilations) == (1, 1, 1)


def test_runs_depend_on_their_seed_alone(cwo):
    data = toy_dataset()
    run, again, other = (fit(cwo, data, seed) for seed in (0, 0, 1))
    one, again, other = run.curve, again.curve, other.curve
    assert one == again
    assert one[-1].train_loss < one[0].train_loss
    assert one[-1].test_accuracy > 0.5
    assert run.step_ms > 0
    assert one != other


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cwo", "cwo-step"])
def test_evaluation_is_free_of_noise(method, cwo):
    """Noise per sample is not drawn; noise per step is removed."""
    data, trainer = toy_dataset(), cwo if method == "cwo" else toy_trainer(method)
    state, _ = trainer.epoch(start(trainer, 0), *data[:2])
    clean = state.params
    if method == "cwo-step":
        clean = clean_parameters(state.optimizer_state, state.params)
        scale = [tree["blocks"][0]["linear"]["kernel"].scale for tree in (clean, state.params)]
        assert not np.allclose(*scale, rtol=1e-3)
    params = jax.tree.map(np.asarray, effective(clean))
    x = data.X_test
    for index in sorted(params["blocks"]):
        layer = params["blocks"][index]["linear"]
        x = np.maximum(x @ layer["kernel"] + layer["bias"], 0)
    logits = (x @ params["head"]["kernel"] + params["head"]["bias"]).astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    measured = trainer.evaluate(state, *data[2:4])
    assert float(measured.loss) == pytest.approx(-logs[np.arange(23), data.y_test].mean(), rel=1e-4)
    assert float(measured.accuracy) == pytest.approx((logits.argmax(1) == data.y_test).mean())


def test_evaluation_in_chunks_drops_no_row(bn):
    data = toy_dataset()

    def apply(params, state, x, train):
        return x @ params["head"], state

    state = start(bn, 0)._replace(params={"head": jnp.eye(6, 3)})
    whole = AheadOfTime(make_evaluate(METHODS["bn"], apply))(state, *data[2:4])
    for chunk in (5, 22, 23):
        parts = AheadOfTime(make_evaluate(METHODS["bn"], apply, chunk=chunk))(state, *data[2:4])
        assert_same(parts, whole, 1e-5, 0)


def test_augmentation_is_part_of_the_step(cwo):
    images = np.random.default_rng(0).normal(size=(32, 8, 8, 1)).astype(np.float32)
    seen = AheadOfTime(partial(batch_at, augment=pad_crop_flip))
    state, order = start(cwo, 0), jnp.arange(32).reshape(2, 16)
    arguments = (state, images, np.zeros(32, np.int32), order)
    batches = [np.asarray(seen(*arguments, jnp.int32(i)).X) for i in (0, 0, 1)]
    np.testing.assert_array_equal(batches[0], batches[1])
    assert not np.array_equal(batches[0], images[:16])
    later = (state._replace(epoch=state.epoch + 1), *arguments[1:])
    assert not np.array_equal(seen(*later, jnp.int32(0)).X, batches[0])
    keys = jax.random.key_data(epoch_keys(state))
    assert not np.array_equal(keys[0], keys[1])


def test_impossible_settings_are_told():
    data = toy_dataset()
    narrow = data._replace(X_train=data.X_train[:, :1], X_test=data.X_test[:, :1])
    with pytest.raises(UserError, match="cwo does not fit this network"):
        fit(make_trainer(METHODS["cwo"], SETTINGS, narrow), narrow, 0)


@pytest.mark.slow
def test_convolutions_train_without_a_scan_on_the_cpu():
    data = toy_dataset()
    X_train, X_test = (
        np.tile(X[:, :4, None, None], (1, 1, 4, 1)) for X in (data.X_train, data.X_test)
    )
    settings = SETTINGS.changed(model="cnn9", channels=1, epochs=1, batch_size=32)
    images = data._replace(X_train=X_train, X_test=X_test)
    trainer = make_trainer(METHODS["cwo"], settings, images)
    assert isinstance(trainer.epoch, Stepwise)
    run = fit(trainer, images, 0)
    assert np.isfinite(run.curve[-1].train_loss)
    assert trainer.epoch.compilations == 1
