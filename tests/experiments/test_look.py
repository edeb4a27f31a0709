"""The line about a network that is off before its first step, and the picture of its signal."""

from types import SimpleNamespace
from typing import NoReturn

import matplotlib.image
import numpy as np
import pytest

from experiments import comparison
from experiments.compare import compare
from experiments.comparison import Comparison
from experiments.methods.table import METHODS
from experiments.reports.signals import draw_signals, values_of
from experiments.settings import Settings
from experiments.train import train
from experiments.training.look import initial_network

SIGMOIDS = Settings(model="mlp", depth=6, width=16, activation="sigmoid", train_rows=64)


@pytest.fixture(scope="module")
def network():
    trained = Comparison(SIGMOIDS)
    (spec,), dataset = trained.specs([("none", (), 0)]), trained.dataset(0)
    return initial_network(trained.trainer(spec, dataset), dataset, 0)


@pytest.mark.slow
def test_sigmoids_make_rows_alike(network):
    assert network.verdict().startswith("rows become alike from blocks/1/linear/kernel on")


@pytest.mark.slow
def test_picture_of_the_signal(network, tmp_path):
    signal = network.signal()
    size, cosine = values_of(signal, "size"), values_of(signal, "cosine")
    assert len(size) == len(cosine) == 7
    assert cosine[0] < 0.8 < 0.99 < cosine[-2]
    first = [signal[f"blocks/0/linear/kernel/{name}"] for name in ("variance", "squared_mean")]
    np.testing.assert_allclose(size[0] ** 2, sum(first), rtol=1e-6)
    draw_signals(tmp_path / "signals.png", {"none": signal}, "digits")
    assert np.ptp(matplotlib.image.imread(tmp_path / "signals.png")) > 0.5


class Begins(Exception):
    """The training begins."""


def begin(*arguments: object, **options: object) -> NoReturn:
    raise Begins


def test_one_line_for_each_method_before_the_training(monkeypatch, tmp_path, capsys):
    def look(trainer, dataset, seed):
        assert seed == 0
        verdict = "x." if trainer.method.name == "none" else ""
        return SimpleNamespace(verdict=lambda: verdict)

    monkeypatch.setattr(comparison, "initial_network", look)
    monkeypatch.setattr("experiments.compare.run_all", begin)
    monkeypatch.setattr(Comparison, "trained", begin)
    with pytest.raises(Begins):
        compare(SIGMOIDS, [METHODS["none"], METHODS["lcw"]], [0, 1], tmp_path, "compare")
    assert capsys.readouterr().out == "none, before training: x.\n"
    with pytest.raises(Begins):
        train(SIGMOIDS, METHODS["none"], 0, tmp_path)
    assert "\nnone, before training: x.\n" in capsys.readouterr().out
