"""Steps that are not finite: where the run stops, which are skipped, and compare's report."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cli import main
from experiments.config import Config
from experiments.methods.table import METHODS
from experiments.runs.store import Store
from experiments.train import _stored
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import batch_order
from experiments.training.fit import fit
from experiments.training.nonfinite import first_nonfinite, guarded
from experiments.training.run import Diverged
from experiments.training.state import Batch, StepMetrics
from experiments.training.trainer import make_trainer
from tests.experiments.parallel import assert_same, with_keys
from tests.experiments.test_runs import run as finished
from tests.experiments.test_runs import spec
from tests.experiments.toy import save_toy, start, toy_dataset

SETTINGS = Config(depth=2, width=4, epochs=2, batch_size=16)


def with_outlier(size):
    """Returns the toy data with one row of that size, in step 2 of the first epoch; the row."""
    data = toy_dataset()
    X = data.X_train.copy()
    row = int(orders()[0][2, 5])
    X[row] = size
    return data._replace(X_train=X), row


def orders():
    """Returns the batches of the two epochs, from the seed alone."""
    state = start(trainer("record"), 0)
    later = state._replace(epoch=state.epoch + 1)
    return [np.asarray(batch_order(each, 70, 16)) for each in (state, later)]


MADE = {}


def trainer(nonfinite):
    """Makes one trainer per choice, whose compiled functions all tests share."""
    if nonfinite not in MADE:
        settings = SETTINGS.changed(nonfinite=nonfinite)
        MADE[nonfinite] = make_trainer(METHODS["none"], settings, toy_dataset())
    return MADE[nonfinite]


@pytest.mark.slow
def test_a_run_stops_at_the_step_and_names_the_layer():
    # 6 x 3e38 x a weight overflows in the first layer's product.
    with pytest.raises(Diverged) as error:
        fit(trainer("stop"), with_outlier(3e38)[0], 0)
    expected = "not finite at step 3 of epoch 1, first in the pre-activations of blocks/0/linear"
    assert str(error.value) == expected


def first_in(state, batch):
    subject = trainer("stop")
    return first_nonfinite(subject.method, subject.context, state, batch)


def test_the_first_layer_in_execution_order_is_named():
    data, healthy = toy_dataset(), start(trainer("stop"), 0)
    batch = with_keys(*jax.device_put(data[:2]))
    everything_finite = "in the loss or the gradient; all pre-activations are finite"
    assert first_in(healthy, batch) == everything_finite
    for broken in (["head"], ["blocks", 1, "linear"], ["blocks", 0, "linear"]):
        params = jax.tree.map(lambda x: x, healthy.params)
        layer = functools.reduce(lambda tree, key: tree[key], broken, params)
        layer["kernel"] = layer["kernel"].at[0, 0].set(jnp.inf)
        found = first_in(healthy._replace(params=params), batch)
        assert found == f"first in the pre-activations of {'/'.join(map(str, broken))}"


def test_logits_that_are_not_finite_behind_all_kernels_are_named():
    subject, data = trainer("stop"), toy_dataset()
    functional = subject.context.functional

    def apply(*args, **options):
        logits, state = functional.apply(*args, **options)
        return jnp.log(-jnp.abs(logits)), state

    context = subject.context._replace(functional=functional._replace(apply=apply))
    batch = with_keys(*jax.device_put(data[:2]))
    found = first_nonfinite(subject.method, context, start(subject, 0), batch)
    assert found == "first in the logits; all pre-activations are finite"


@pytest.mark.slow
def test_skipping_is_training_without_those_steps():
    data, row = with_outlier(3e38)
    skipping, step = trainer("skip"), AheadOfTime(trainer("record").step)
    run = fit(skipping, data, 0)
    state, losses = start(trainer("record"), 0), []
    for order in orders():
        taken = [rows for rows in order if row not in rows]
        losses.append([])
        for rows in taken:
            state, metrics = step(state, with_keys(data.X_train[rows], data.y_train[rows]))
            losses[-1].append(float(metrics.loss))
    skipped = sum(row in order for order in orders())
    assert int(run.state.skipped) == skipped >= 1
    assert [len(each) for each in losses] == [4 - (row in order) for order in orders()]
    for entry, epoch in zip(run.curve, losses, strict=True):
        assert entry.train_loss == pytest.approx(np.mean(epoch), rel=1e-5)
    assert_same(run.state.params, state.params, 1e-5, 1e-6)


@pytest.mark.slow
def test_a_guard_changes_no_finite_run():
    data = toy_dataset()
    curves = [fit(trainer(choice), data, 1).curve for choice in ("record", "stop", "skip")]
    for curve in curves[1:]:
        np.testing.assert_allclose(curve, curves[0], rtol=1e-5)


@pytest.fixture(scope="module")
def npz(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("data"))


FLAGS = ["--depth", "1", "--width", "4", "--batch-size", "16", "--epochs", "2"]


@pytest.mark.slow
def test_train_exits_with_1_and_one_line_or_goes_on(npz, tmp_path, capsys):
    # Weights of 1e38 after the first step: the second step's products overflow.
    command = ["train", "--dataset", npz, "--method", "none", *FLAGS, "--learning-rate", "1e38"]
    command += ["--out", str(tmp_path / "out"), "--checkpoint-dir", str(tmp_path / "saved")]
    assert main(command) == 1
    err = capsys.readouterr().err
    assert "none, seed 0: diverged, not finite at step" in err
    assert "The last good checkpoint: none." in err
    assert err.count("\n") == 1
    assert not list((tmp_path / "out").iterdir())
    assert main([*command, "--skip-nonfinite", "--resume"]) == 0
    captured = capsys.readouterr()
    assert "Updates left out because a number was not finite: " in captured.out


@pytest.mark.parametrize(("skips", "skipped", "stored"), [(0, 0, 1), (0, 2, 0), (1, 0, 0)])
def test_a_run_without_some_updates_is_not_stored(skips, skipped, stored, tmp_path):
    """Also one that left them out before it was resumed without the flag."""
    store, ended = Store(tmp_path), finished()._replace(state=SimpleNamespace(skipped=skipped))
    assert _stored(store, spec(), ended, None, bool(skips)) == skipped
    assert len(store.rows()) == stored


def test_a_finite_loss_with_a_gradient_that_is_not_is_skipped():
    """The square root of 0 is 0, and its slope is infinite."""
    kept = {"params": {"w": jnp.float32(3)}, "model_state": {"key": jax.random.key(1)}}
    state = start(trainer("record"), 0)._replace(**kept)

    def descend(state, batch):
        loss, slope = jax.value_and_grad(lambda w: jnp.sqrt(batch.X * w))(state.params["w"])
        moved = {"params": {"w": state.params["w"] - slope}}
        moved["model_state"] = {"key": jax.random.key(2)}
        return state._replace(**moved), StepMetrics(loss, loss, slope)

    step = jax.jit(guarded(descend))
    for batch, moves in ((1.0, True), (0.0, False)):
        after, metrics = step(state, Batch(jnp.float32(batch), None, None))
        assert np.isfinite(metrics.loss)
        assert int(after.skipped) == (not moves)
        assert after.model_state["key"] == jax.random.key(2 if moves else 1)
        # 3 - 1 / (2 sqrt 3)
        wanted = 3 - 0.5 / np.sqrt(3) if moves else 3
        np.testing.assert_allclose(after.params["w"], wanted, rtol=1e-6)


def test_the_step_whose_gradient_overflows_is_the_one_that_is_named():
    """Clipping leaves finite parameters; the epoch's mean is not finite, and stops the run."""
    state = start(trainer("record"), 0)._replace(params={"w": jnp.float32(3)})

    def clipped(state, batch):
        return state, StepMetrics(jnp.float32(1), jnp.float32(1), batch.X)

    step = jax.jit(guarded(clipped, goes_on=False))
    for norm, left_out in ((1.0, 0), (np.inf, 1), (1.0, 2)):
        state, _ = step(state, Batch(jnp.float32(norm), None, None))
        assert int(state.skipped) == left_out
