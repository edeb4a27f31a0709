"""Steps of the full presets: which there are, what they need, and one of a small network."""

from pathlib import Path

import numpy as np
import pytest

from experiments.cli import main
from experiments.papers import full, full_step
from experiments.papers.full import Full
from experiments.papers.full_step import compiled, kinds, one_step
from experiments.papers.grid import Cell, Protocol
from experiments.papers.registry import ITEMS
from tests.experiments.toy import rows_of

#: A hidden layer of 5 units on rows of 4 x 4 x 3; ten classes.
TINY = Protocol(model="mlp", depth=1, width=5, batch_size=4, learning_rate=0.1, epochs=1)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(full, "SHAPES", {"cifar10": full.Shape((4, 4, 3), 12, 10)})
    return Full("cwo/tiny", Cell("Plain", "none", dataset="cifar10"), TINY)


def test_a_compiled_step_holds_its_parameters_twice_and_counts_its_products(tiny):
    needs = compiled(tiny)
    parameters = needs.parameters
    assert parameters == 48 * 5 + 5 + 5 * 10 + 10
    # In float32 parameters, momentum and rows; the labels and a few counters.
    state_and_batch = 4 * (2 * parameters + 4 * 48 + 4)
    assert state_and_batch <= needs.arguments <= state_and_batch + 50
    # A product forwards and one for its kernel's gradient, and one back to the hidden layer.
    products = 2 * 4 * (2 * 48 * 5 + 3 * 5 * 10)
    assert products < needs.flops < 2 * products
    assert needs.total == needs.arguments + needs.temporary + needs.new


@pytest.mark.parametrize("name", ["memory", "step"])
def test_the_committed_tables_have_every_kind(name):
    folder = Path(full_step.__file__).parents[1] / "results" / "full"
    rows = rows_of(folder / f"{name}.csv")
    wanted = [
        (each.item, each.setting.model, each.row, each.cell.method)
        for each, own in kinds(ITEMS.values())
        if own or name == "memory"
    ]
    assert [tuple(row[column] for column in full_step.PLACE[:4]) for row in rows] == wanted


def test_one_step_measures_loss_and_gradient_before_it(tiny):
    """Against the same network and its gradient in NumPy."""
    found = one_step(tiny, 4)
    random = np.random.default_rng(0)
    X = random.standard_normal((4, 4, 4, 3), np.float32)
    y = random.integers(0, 10, 4)
    params = full_step.trainer_of(tiny, 4).init(np.uint32(0), X).params
    layers = params["blocks"][0]["linear"], params["head"]
    (W, b), (V, c) = ((np.float64(each["kernel"]), np.float64(each["bias"])) for each in layers)
    rows = X.reshape(4, -1).astype(np.float64)
    hidden = np.maximum(rows @ W + b, 0)
    shares = np.exp(hidden @ V + c)
    shares /= shares.sum(1, keepdims=True)
    assert found.loss == pytest.approx(-np.log(shares[range(4), y]).mean(), rel=1e-4)
    error = (shares - np.eye(10)[y]) / 4
    back = (error @ V.T) * (hidden > 0)
    parts = rows.T @ back, back.sum(0), hidden.T @ error, error.sum(0)
    norm = sum((part**2).sum() for part in parts) ** 0.5
    assert found.gradient_norm == pytest.approx(norm, rel=1e-4)
    assert found.finite == "yes"
    assert found.core_seconds >= 0


@pytest.mark.slow
def test_the_command_writes_both_tables(tiny, monkeypatch, tmp_path, capsys):
    beside = tiny._replace(cell=Cell("BN", "bn", dataset="cifar10"))
    tiny = tiny._replace(cell=Cell("Ours", "cwo", dataset="cifar10"))
    monkeypatch.setattr(full_step, "kinds", lambda items: [(tiny, True), (beside, False)])
    command = ["paper", "cwo/tab1", "--memory", "--one-step", "--out", str(tmp_path)]
    assert main(command) == 0
    rows = {name: rows_of(tmp_path / f"{name}.csv") for name in ("memory", "step")}
    assert [row["method"] for row in rows["memory"]] == ["cwo", "bn"]
    (step,) = rows["step"]
    assert (step["batch"], step["paper_batch"], step["finite"]) == ("4", "4", "yes")
    assert step["guess_loss"] == "2.30259"
    assert "gflops" in capsys.readouterr().out
