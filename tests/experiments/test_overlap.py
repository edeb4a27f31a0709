"""The host reports and saves an epoch while the device runs the next one."""

import jax
import numpy as np
import pytest

from experiments.training import epoch
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import EpochPlan, Stepwise
from experiments.training.fit import fit
from experiments.training.history import NoCheckpoints
from tests.experiments.toy import start, toy_dataset, toy_trainer

STEPS, EPOCHS = 4, 3


class Seen(NoCheckpoints):
    """Records when it gets which state; asks to end after an epoch, if one is given."""

    def __init__(self, log, last=None):
        self.log, self.last_epoch, self.states, self.asked = log, last, [], 0

    def signal(self):
        self.asked += 1
        return 15 if self.asked == self.last_epoch else 0

    def after_epoch(self, state, history, signal):
        self.log.append("saves")
        self.states.append(jax.device_get(state))


@pytest.fixture(params=["scanned", "stepwise"])
def trainer(request):
    trainer = toy_trainer("cwo")
    if request.param == "scanned":
        return trainer
    return trainer._replace(epoch=Stepwise(EpochPlan(trainer.step, 16)))


@pytest.fixture
def log(monkeypatch):
    """Returns the names of the compiled functions, in the order of their calls."""
    names, call = [], AheadOfTime.__call__

    def noted(self, *args):
        result = call(self, *args)
        names.append(self.__wrapped__.__name__)
        return result

    monkeypatch.setattr(AheadOfTime, "__call__", noted)
    return names


@pytest.mark.slow
def test_results_are_recorded_once_the_next_epoch_has_begun(trainer, log, monkeypatch):
    monkeypatch.setattr(epoch, "STEPS_AHEAD", 3)
    fit(trainer, toy_dataset(), 0, lambda entry: log.append("reports"), Seen(log))
    work = [name for name in log if name in ("epoch", "indexed_step", "reports", "saves")]
    host = ["reports", "saves"]
    first, rest = ["epoch"], []
    if isinstance(trainer.epoch, Stepwise):
        first, rest = ["indexed_step"] * 3, ["indexed_step"] * (STEPS - 3)
    assert work == [*first, *rest, *(EPOCHS - 1) * [*first, *host, *rest], *host]


@pytest.mark.kept("stepwise")
def test_what_is_saved_is_the_state_after_its_own_epoch(trainer):
    data, seen = toy_dataset(), Seen([])
    run = fit(trainer, data, 0, checkpointer=seen)
    state = start(trainer, 0)
    for saved in seen.states:
        state, _ = trainer.epoch(state, *jax.device_put(data[:2]))
        jax.tree.map(np.testing.assert_array_equal, saved, jax.device_get(state))
    jax.tree.map(np.testing.assert_array_equal, seen.states[-1], jax.device_get(run.state))
    assert len(seen.states) == len(run.curve) == EPOCHS


@pytest.mark.kept("stepwise")
def test_a_signal_is_obeyed_before_another_epoch_begins(trainer, log):
    seen = Seen(log, last=2)
    run = fit(trainer, toy_dataset(), 0, checkpointer=seen)
    assert [int(state.epoch) for state in seen.states] == [1, 2]
    assert len(run.curve) == 2
    assert log[-1] == "saves"
