"""A line within the first hundred updates of a training whose rate kills the network."""

import re
from typing import Any

import pytest

from experiments.config import Config
from experiments.data.load import load
from experiments.methods.table import METHODS
from experiments.training.early import early_look
from experiments.training.epoch import Scanned, Stepwise
from experiments.training.fit import fit
from experiments.training.trainer import make_trainer
from tests.experiments.toy import SETTINGS, toy_dataset

#: Methods and rates on the digits: trainings that learn, and others, which end at chance or in NaN.
LEARN = [("none", 0.05), ("bn", 0.5), ("cwo-centre-sphere", 0.05)]
DIE = [("none", 0.5), ("gn", 2.0), ("cwo-centre-sphere", 2.0), ("agc", 0.5), ("lcw", 0.5)]


def lines(method: str, rate: float, model: str) -> list[str]:
    """Returns what is said of a training on the digits."""
    said: list[str] = []
    config = Config(epochs=4, learning_rate=rate, model=model, channels=8)
    data = load("digits", 0)
    trainer = make_trainer(METHODS[method], config, data)
    fit(trainer, data, 0, look=early_look(trainer, data, said.append))
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rate", "model"),
    [("bn", 0.5, "cnn4"), ("none", 0.5, "cnn4"), *((*each, "mlp") for each in LEARN + DIE)],
)
def test_dying_trainings_say_so_and_sound_ones_do_not(method: str, rate: float, model: str) -> None:
    said = lines(method, rate, model)
    assert len(said) == ((method, rate) in DIE)
    for line in said:
        start = re.escape(f"The learning rate, {rate:g}, is too high for {method}: ")
        assert re.match(start, line)
        assert line.endswith(f"Try a third, --learning-rate {rate / 3:.2g}.")


@pytest.mark.parametrize(("runner", "after"), [(Scanned, 140), (Stepwise, 100)])
def test_a_training_is_looked_at_within_a_hundred_updates(runner: Any, after: int) -> None:
    """Unless its epoch is one compiled loop, which ends first."""
    data, seen = toy_dataset(rows=140), list[int]()
    trainer = make_trainer(METHODS["none"], SETTINGS.changed(batch_size=1, epochs=2), data)
    # Each update adds 1 to the count of skipped updates, and does nothing else.
    counted = trainer.plan._replace(
        step=lambda state, batch: (
            state._replace(skipped=state.skipped + 1),
            trainer.step(state, batch)[1],
        )
    )
    trainer = trainer._replace(epoch=runner(counted))
    fit(trainer, data, 0, look=lambda state: seen.append(int(state.skipped)))
    assert seen == [0, after]
