"""The best learning rate of each size: the parabola, the table and the trainings."""

import jax
import numpy as np
import pytest

from experiments.analysis.csv import write_csv
from experiments.analysis.tuning.transfer import Transfer, Trial, best_octave, read, table
from experiments.config import Config
from experiments.data.bundled import load_characters
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.training.trainer import make_trainer

OCTAVES = range(-6, -2)


def trials(method, size, best, seed=0):
    return [Trial(method, size, 64, 8, seed, n, round(1.0 + (n - best) ** 2, 5)) for n in OCTAVES]


def test_the_best_rate_is_the_lowest_point_of_the_parabola():
    losses = np.array([3 + 2 * (n + 4.3) ** 2 for n in OCTAVES])
    assert best_octave(losses, OCTAVES) == pytest.approx(-4.3)
    assert best_octave(losses.cumsum(), OCTAVES) == -6
    losses[3] = np.inf
    assert best_octave(losses, OCTAVES) == -4


def test_the_table_has_the_loss_at_the_first_size_s_rate(tmp_path):
    runs = [*trials("none", "2x32", -4), *trials("none", "2x64", -5.2), *trials("wn", "2x32", -3.5)]
    write_csv(tmp_path / "rates.csv", Trial._fields, runs)
    assert read(tmp_path / "rates.csv") == runs
    _, rows = table(runs)
    assert rows[0] == ("none", "2x32", "-4.0", "1.000", "1.000")
    assert rows[1] == ("none", "2x64", "-5.2", "1.040", "2.440")
    assert rows[2][:2] == ("wn", "2x32")


def test_trials_of_another_length_are_others(tmp_path, monkeypatch):
    monkeypatch.setattr(Transfer, "training", lambda self, *_: lambda seed: float(self.steps))
    flags = {"methods": "none", "sizes": "1x4", "seeds": 1, "octaves": (-6, -5), "out": tmp_path}
    for steps in (2, 4):
        Transfer(**flags, steps=steps).run("command")
    assert [trial.loss for trial in read(tmp_path / "rates.csv")] == [2.0, 2.0, 4.0, 4.0]
    page = (tmp_path / "table.md").read_text()
    assert "4.000" in page
    assert "2.000" not in page
    write_csv(tmp_path / "rates.csv", ("method", "size", "seed", "octave", "loss"), [])
    with pytest.raises(UserError, match="has no column steps"):
        Transfer(**flags).run("command")


def test_methods_with_refreshes_are_refused():
    with pytest.raises(UserError, match="renews statistics between its steps"):
        Transfer(batch_size=2, steps=2).training(METHODS["pn"], "1x4", -5)


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
def test_the_trainings_are_those_of_compare(tmp_path, capsys):
    """The second of two steps, from a trainer's epoch and its first step; the file's rows stay."""
    flags = {"methods": "cwo-angle", "sizes": "1x4", "seeds": 1, "steps": 2, "batch_size": 2}
    transfer = Transfer(**flags, octaves=(-6, -5), out=tmp_path)
    transfer.run("command")
    transfer.run("command")
    assert capsys.readouterr().out.count("| cwo-angle |") == 2
    found = read(tmp_path / "rates.csv")
    assert [trial.octave for trial in found] == [-6, -5]

    data = load_characters(0)
    data = data.split_anew((data.X_train[:4], data.y_train[:4]), (data.X_test, data.y_test))
    sizes = Config(model="transformer", depth=1, width=4, optimizer="adam", batch_size=2, epochs=1)
    trainer = make_trainer(METHODS["cwo-angle"], sizes.changed(learning_rate=2.0**-5), data)
    state = trainer.init(jax.numpy.uint32(0), data.X_train)
    batch = trainer.epoch.batch(state, data.X_train, data.y_train, 0)
    first = jax.jit(trainer.step)(state, batch)[1].loss
    _, metrics = trainer.epoch(state, data.X_train, data.y_train)
    np.testing.assert_allclose(found[1].loss, 2 * metrics.loss - first, rtol=1e-4)
    assert found[0].loss != found[1].loss
