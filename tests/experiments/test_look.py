"""The line about a network that is off before its first step."""

from typing import NoReturn

import pytest

from experiments.cli import run
from experiments.commands import Compare, Train
from experiments.config import Config
from experiments.runs import comparison
from experiments.runs.comparison import Comparison
from experiments.training.look import initial_signal

SIGMOIDS = Config(model="mlp", depth=6, width=16, activation="sigmoid", train_rows=64)


@pytest.mark.slow
def test_sigmoids_make_rows_alike():
    trained = Comparison(SIGMOIDS)
    (spec,), dataset = trained.specs([("none", (), 0)]), trained.dataset(0)
    line = initial_signal(trained.trainer(spec, dataset), dataset, 0)
    assert line.startswith("rows become alike from blocks/1/linear/kernel on")


class Begins(Exception):
    """The training begins."""


def begin(*arguments: object, **options: object) -> NoReturn:
    raise Begins


def test_one_line_for_each_method_before_the_training(monkeypatch, tmp_path, capsys):
    def look(trainer, dataset, seed):
        assert seed == 0
        return "x." if trainer.method.name == "none" else ""

    monkeypatch.setattr(comparison, "initial_signal", look)
    monkeypatch.setattr("experiments.compare.run_all", begin)
    monkeypatch.setattr(Comparison, "trained", begin)
    with pytest.raises(Begins):
        run(Compare(methods="none,lcw", seeds=2, out=tmp_path, config=SIGMOIDS), "compare")
    assert capsys.readouterr().out == "none, before training: x.\n"
    with pytest.raises(Begins):
        run(Train(method="none", out=tmp_path, config=SIGMOIDS), "train")
    assert "\nnone, before training: x.\n" in capsys.readouterr().out
