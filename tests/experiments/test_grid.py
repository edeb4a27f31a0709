"""Tables of trainings: their cells, stored runs, and orderings over paired seeds."""

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.errors import UserError
from experiments.methods.constrained import Constrained, Sphere
from experiments.methods.scale_noise import ScaleNoise
from experiments.methods.table import METHODS
from experiments.models.style import ACTIVATIONS
from experiments.papers.data import (
    described,
    enlarged,
    find,
    load_data,
    subset,
)
from experiments.papers.grid import PAPER, Cell, Grid, Ordering
from experiments.papers.items import ITEMS
from experiments.papers.scores import SCORES, scores_of
from experiments.papers.table import averaged, differences, noise_note, report_of
from experiments.papers.training import GridTraining, Trained, method_of, spec_of
from experiments.papers.verdict import NOTE, comparison, measured
from experiments.training.run import Epoch, Run
from tests.experiments.test_runs import PROTOCOL
from tests.experiments.toy import run_of, toy_dataset, toy_trainer

GRID = Grid(
    (
        Cell("plain", "none", "small", 5.0),
        Cell("normalized", "bn", "small", 4.0),
        Cell("normalized", "bn", "wide", None, changes={"width": 8}),
    ),
    (Ordering("normalized", "plain"),),
    as_error=True,
)


#: A cell's changes win, so that 500 epochs in a cell would also be trained in smoke.
SIZES = {"epochs", "channels", "train_rows", "test_rows", "seeds", "held_out"}


@pytest.mark.parametrize("name", [name for name, item in ITEMS.items() if item.grid])
def test_every_cell_is_spelt_right_and_keeps_the_sizes_of_reduced_presets(name):
    grid, presets = ITEMS[name].grid, ITEMS[name].presets
    names = [cell.name for cell in grid.cells]
    assert len(set(names)) == len(names)
    assert all(cell.method in METHODS for cell in grid.cells)
    ordered = {row for each in grid.orderings for row in (each.better, each.worse)}
    assert ordered <= {cell.row for cell in grid.cells}
    for size, preset in presets.items():
        settings = [preset.settings.changed(**cell.changes) for cell in grid.cells]
        assert all(setting.activation in ACTIVATIONS for setting in settings)
        chosen = grid.chosen(preset.settings)
        assert len(chosen) >= 2
        assert size == "full" or not any(SIZES & cell.changes.keys() for cell in chosen)


def made(method, protocol, **changes):
    """Returns the method of a cell with these changes."""
    return method_of(method, protocol.changed(**changes))


def test_noise_and_radius_are_the_protocols_where_it_has_them():
    growing, wider = PROTOCOL.changed(growing_noise=1.0), PROTOCOL.changed(squared_radius=3.0)
    assert made("cwo", growing).get(ScaleNoise) == ScaleNoise(1.0, grows=True)
    assert made("cwo", PROTOCOL) == METHODS["cwo"]
    assert made("cwo-centre-sphere", growing) == METHODS["cwo-centre-sphere"]
    assert made("cwo", growing, noise=0.5).get(ScaleNoise) == ScaleNoise(0.5, grows=True)
    assert made("cwo", wider).get(Sphere) == Constrained(3.0)
    assert made("cwo-centre", wider) == METHODS["cwo-centre"]


def test_a_report_says_the_noise_of_each_row():
    cells = [Cell("Ours", "cwo"), Cell("step", "cwo-step"), Cell("BN", "bn")]
    (said,) = noise_note(cells, PROTOCOL)
    assert (
        "Ours 0.1 (each layer, one draw per sample); step 0.1 (each layer, one draw per step)."
        in said
    )
    (said,) = noise_note(cells[:1], PROTOCOL.changed(growing_noise=1.0))
    assert "Ours 1 (last layer, l / L of it in layer l, one draw per sample)." in said
    assert noise_note(cells[2:], PROTOCOL) == []


def test_a_reduced_preset_says_in_what_it_differs():
    full = PAPER.changed(rate_schedule=((0.5, 0.1),))
    reduced = PAPER.changed(channels=16, only_rows=("BN", "WN"))
    assert differences(full, reduced) == (
        "channels 16, half a cosine for the learning rate, only rows BN; WN"
    )


def saved(folder, rows=20, level=0):
    """Saves a data set of small images in its own folder, and returns the folder."""
    folder.mkdir()
    X = np.random.default_rng(level).integers(0, 256, (rows, 4, 4, 3)).astype(np.uint8)
    np.savez(folder / "cifar10.npz", X=X, y=np.arange(rows) % 2)
    return folder


def test_runs_on_other_data_are_not_taken_for_these(tmp_path):
    one, same = (saved(tmp_path / name) for name in ("one", "same"))
    other, grown = saved(tmp_path / "other", level=1), saved(tmp_path / "grown")
    np.savez(grown / "cifar100.npz", X=np.zeros(3), y=np.zeros(3))

    cell = GRID.cells[0]._replace(dataset="cifar10")

    def rows(folder):
        training = GridTraining(PROTOCOL.changed(train_rows=8, test_rows=4, batch_size=4), folder)
        return training.parts(spec_of(cell, 0, PROTOCOL))["rows"]

    assert rows(one) == rows(same) == rows(grown)
    assert len({rows(folder) for folder in (one, other, None)}) == 3


def test_datasets_of_equal_shapes_and_other_classes_have_programs_of_their_own(tmp_path):
    folder = saved(tmp_path / "both", rows=20)
    X = np.load(folder / "cifar10.npz")["X"]
    np.savez(folder / "cifar100.npz", X=X, y=np.arange(20) % 4)
    training = GridTraining(PROTOCOL.changed(train_rows=8, test_rows=4, batch_size=4), folder)

    def step(name):
        cell = GRID.cells[0]._replace(dataset=name)
        return training.parts(spec_of(cell, 0, PROTOCOL))["step"]

    assert step("cifar10") != step("cifar100")


def test_an_edited_score_is_another_run(tmp_path, monkeypatch):
    cell = GRID.cells[0]._replace(changes={"scores": ("class_accuracy",)})
    training = GridTraining(PROTOCOL.changed(train_rows=8, test_rows=4, batch_size=4), None)

    def parts(cell):
        return training.parts(spec_of(cell, 0, PROTOCOL))

    usual, plain = parts(cell), parts(GRID.cells[0])
    monkeypatch.setitem(SCORES, "class_accuracy", lambda logits, labels: 0.0)
    edited = parts(cell)
    assert {name for name in usual if usual[name] != edited[name]} == {"scores"}
    assert parts(GRID.cells[0]) == plain


def trained(accuracies):
    """Makes runs of the first two cells with these test accuracies by seed."""
    return [
        Trained(cell, [run_of(cell.method, seed, x) for seed, x in enumerate(row)])
        for cell, row in zip(GRID.cells, accuracies, strict=False)
    ]


@pytest.mark.parametrize(
    ("plain", "normalized", "holds", "said"),
    [
        ((0.5, 0.6), (0.7, 0.5), None, "undecided"),
        ((0.5, 0.6), (0.7, 0.81), True, ""),
        ((0.5, 0.6), (0.4, 0.49), False, ""),
        ((0.5,), (0.7,), None, "undecided"),
    ],
)
def test_orderings_are_judged_over_paired_seeds(plain, normalized, holds, said):
    report = report_of(GRID, trained([plain, normalized]))
    ordering = report.findings[0]
    assert ordering.statement == "normalized better than plain (small), test accuracy"
    assert (ordering.holds, ordering.reason) == (holds, said)
    assert NOTE in report.notes


def test_an_ordering_says_its_interval():
    """Student's t of two differences of 20 and -10 points: 5 +- 12.706 * 21.21 / sqrt(2)."""
    report = report_of(GRID, trained([(0.5, 0.6), (0.7, 0.5)]))
    ordering, plain, normalized = report.findings
    assert ordering.ours == "+5.00 points [-185.59, +195.59]"
    assert (plain.ours, plain.reference) == ("45.00 ± 7.07", "5")
    assert normalized.statement == "normalized, small: test error, %"
    assert len(report.rows) == 4
    assert len(report.figures["curves"].axes) == 4


def test_an_ordering_against_what_did_not_train_is_not_judged():
    plain, normalized = trained([(0.5, 0.6), (0.7, 0.8)])
    lost = [plain.runs[0], plain.runs[1]._replace(outcome="at chance")]
    finding = report_of(GRID, [plain._replace(runs=lost), normalized]).findings[0]
    assert (finding.holds, finding.reason, finding.ours) == (None, "not trained", "none at chance")


def test_a_margin_is_part_of_the_claim():
    ordering = Ordering("normalized", "plain", margin=3.0)
    grid = replace(GRID, orderings=(ordering,))
    runs = trained([(0.50, 0.60, 0.70), (0.49, 0.58, 0.685)])  # 1.5 points worse, +- 1.24.
    finding = report_of(grid, runs).findings[0]
    worse, better = (each.runs for each in runs)
    expected = "normalized within 3 points of plain, or better (small), test accuracy"
    assert (finding.statement, finding.holds) == (expected, True)
    assert not comparison(ordering._replace(margin=0.1), "", better, worse).holds
    assert comparison(ordering._replace(margin=1.5), "", better, worse).reason == "undecided"


def test_the_last_epochs_are_averaged():
    curve = [Epoch(n + 1, 1.0, 0.5, 2.0 - n, x) for n, x in enumerate((0.1, 0.4, 0.6))]
    run = Run("bn", 0, curve, 1.0, 1, None)
    assert measured(averaged(run, 2), "test_accuracy") == pytest.approx(0.5)
    assert measured(averaged(run, 3), "test_loss") == pytest.approx(1.0)
    runs = [each._replace(runs=[run]) for each in trained([(0.5,), (0.7,)])]
    report = report_of(GRID, runs, last=2)
    assert [finding.ours for finding in report.findings[1:]] == ["50.00", "50.00"]
    assert "Measures are means over the last 2 epochs." in report.notes
    assert report.rows[0][report.columns.index("test_accuracy")] == "0.5"
    # The curves have every epoch as it was.
    header, rows = report.curves
    assert header[:4] == ("row", "column", "seed", "epoch")
    assert [row[header.index("test_accuracy")] for row in rows] == 2 * ["0.1", "0.4", "0.6"]


def test_scores_and_losses_stand_beside_with_the_papers():
    cells = [cell._replace(also={"class_accuracy": 60.0}) for cell in GRID.cells[:2]]
    grid = replace(
        GRID,
        cells=tuple(cells),
        orderings=(Ordering("normalized", "plain", measure="class_accuracy"),),
        beside=("class_accuracy", "test_loss"),
        literature={"another network": 3.5},
    )
    found = trained([(0.5, 0.6), (0.7, 0.8)])
    scores = [[{"class_accuracy": x} for x in row] for row in ((0.25, 0.75), (1.25, 1.75))]
    runs = [
        Trained(cell, [run._replace(scores=x) for run, x in zip(each.runs, own, strict=True)])
        for cell, each, own in zip(cells, found, scores, strict=True)
    ]
    report = report_of(grid, runs)
    shown = {finding.statement: (finding.ours, finding.reference) for finding in report.findings}
    assert shown["plain, small: mean-class accuracy, %"] == ("50.00 ± 35.36", "60")
    assert shown["plain, small: test loss"] == ("1.00 ± 0.00", "")
    assert shown["another network: test error, %"] == ("", "3.5 (cited there)")
    assert report.findings[0].holds is True
    assert report.columns[-1] == "class_accuracy"
    assert [row[-1] for row in report.rows] == ["0.25", "0.75", "1.25", "1.75"]


@pytest.mark.parametrize("streamed", [False, True])
def test_scores_are_those_of_the_trained_network(streamed):
    """The reference counts the logits of the test rows by hand."""
    data = toy_dataset()
    trainer = toy_trainer("none")
    state = trainer.init(np.uint32(0), data.X_train)
    if streamed:
        batches = [(data.X_test[:3], data.y_test[:3]), (data.X_test[3:], data.y_test[3:])]
        stream = SimpleNamespace(test_batches=lambda size: batches)
        zero, one = np.zeros(data.X_test.shape[1:]), np.ones(data.X_test.shape[1:])
        data = data._replace(stream=stream, mean=zero.astype("f"), scale=one.astype("f"))
    found = scores_of(trainer, state, data, ("class_accuracy",))
    functional = trainer.context.functional
    X = jnp.asarray(data.X_test)
    logits, _ = functional.apply(state.params, state.model_state, X, train=False)
    guesses = np.asarray(logits).argmax(1)
    classes = sorted({*data.y_test.tolist()})
    shares = [(guesses == data.y_test)[data.y_test == c].mean() for c in classes]
    assert found["class_accuracy"] == pytest.approx(np.mean(shares))
    assert scores_of(trainer, state, data, ()) == {}


def test_five_guesses_count():
    logits = np.array([[6.0, 5, 4, 3, 2, 1], [6.0, 5, 4, 3, 2, 1], [0.0, 0, 0, 0, 0, 0]])
    assert SCORES["top5_accuracy"](logits, np.array([4, 5, 5])) == pytest.approx(2 / 3)
    assert SCORES["class_accuracy"](logits, np.array([0, 0, 5])) == pytest.approx(0.5)


def test_the_first_epochs_alone_can_be_compared():
    curve = [Epoch(n + 1, 1.0, 0.5, 1.0, x) for n, x in enumerate((0.1, 0.3, 0.2, *[0.9] * 12))]
    run = Run("bn", 0, curve, 1.0, 1, None)
    assert measured(run, "early_accuracy") == pytest.approx(0.2)
    assert measured(run, "early_change") == pytest.approx(0.15)
    assert measured(run, "test_accuracy") == 0.9


def test_what_diverged_is_said():
    runs = trained([(0.5, 0.6), (0.1, 0.1)])
    assert report_of(GRID, runs).notes == (NOTE,)
    plain, normalized = runs
    lost = normalized.runs[0]._replace(curve=[Epoch(1, float("nan"), 0.1, float("nan"), 0.9)])
    diverged = normalized._replace(runs=[lost, normalized.runs[1]])
    report = report_of(GRID, [plain, diverged], ("A note.",))
    said = "Training diverged: normalized, small (1 of 2 seeds)."
    assert report.notes == ("A note.", said, NOTE)
    # Its accuracy is that of its first class.
    shown = {finding.statement: finding.ours for finding in report.findings}
    assert shown["normalized, small: test error, %"] == "90.00, diverged 1 of 2"
    assert shown["plain, small: test error, %"].startswith("45.00 ± 7.07")


def test_data_are_found_by_name_or_alone(tmp_path):
    with pytest.raises(UserError, match="holds no dataset 'cifar10'"):
        find(tmp_path, "cifar10")
    data = toy_dataset()
    np.savez(tmp_path / "cifar10.npz", X=data.X_train, y=data.y_train)
    assert find(tmp_path, "cifar10") == find(tmp_path, "") == str(tmp_path / "cifar10.npz")
    assert load_data(tmp_path, "cifar10", 0, 20, 5).X_train.shape == (20, 6)
    assert described(tmp_path, ["cifar10", "cifar10"]) == "cifar10.npz"
    (tmp_path / "train").mkdir()
    assert find(tmp_path, "anything") == str(tmp_path)
    assert described(tmp_path, ["cifar10", "cifar100"]) == tmp_path.name
    assert "digits" in described(None, ["cifar10"])


def test_rows_are_chosen_by_the_seed_after_others_are_held_out():
    data = toy_dataset()
    whole, kept = subset(data, None, None, 0), subset(data, 10, None, 0, held_out=5)
    np.testing.assert_array_equal(kept.X_train, whole.X_train[5:15])
    np.testing.assert_array_equal(kept.X_test, whole.X_test)
    with pytest.raises(UserError, match="holds 1,000 training rows out for validation"):
        subset(data, None, None, 0, held_out=1000)
    one, same, other = (subset(data, 10, 5, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.X_train, same.X_train)
    assert not np.array_equal(one.X_train, other.X_train)
    assert len(whole.X_train) == len(data.X_train)


def test_digits_are_enlarged_by_repetition():
    images = np.arange(2 * 8 * 8, dtype=np.float32).reshape(2, 8, 8, 1)
    large = enlarged(toy_dataset()._replace(X_train=images, X_test=images)).X_train
    assert large.shape == (2, 32, 32, 1)
    np.testing.assert_array_equal(large[:, ::4, ::4], images)
    np.testing.assert_array_equal(large[:, 3::4, 3::4], images)
