"""The UCI experiments: selection by validation, wins, profiles, and resuming."""

import contextlib
import sqlite3

import numpy as np
import polars as pl
import pytest

from experiments.analysis.statistics import wins
from experiments.cli import main
from experiments.papers.item import Context
from experiments.papers.items import ITEMS
from experiments.papers.vcl import fig1, uci
from experiments.papers.vcl.uci import (
    Settings,
    findings_of,
    held_out,
    profile,
    select,
    train_all,
)
from experiments.runs.store import FILE
from tests.experiments.toy import toy_dataset

ERRORS = np.array(
    [
        [0.10, 0.20, 0.1004],  # tied at three digits
        [0.30, 0.25, 0.20],
        [0.50, 0.50, 0.50],  # no win
        [0.40, 0.28, 0.30],
    ]
)


def test_wins_count_ties_and_no_constant_sets():
    np.testing.assert_array_equal(wins(ERRORS), [1, 1, 2])


def test_the_last_bits_of_a_mean_decide_no_win():
    """The mean of 0.1834 and 0.1836 is 0.1835, or one bit less in another order."""
    near = np.array([[0.1842, 0.1849, mean] for mean in (0.1835, np.nextafter(0.1835, 0))])
    np.testing.assert_array_equal(wins(near[:1]), wins(near[1:]))


def test_profile():
    """Accuracies 0.9 0.8 0.9 | 0.7 0.75 0.8 | 0.5 0.5 0.5 | 0.6 0.72 0.7, over each set's best."""
    got = profile(np.round(ERRORS, 3), np.array([1.0, 0.95, 0.88, 0.8]))
    expected = [[0.5, 0.5, 0.75], [0.5, 0.5, 1.0], [0.5, 1.0, 1.0], [1.0, 1.0, 1.0]]
    np.testing.assert_array_equal(got, expected)


def test_the_window_chooses_run_and_epoch():
    """Means of two: 4.5 3.5 2.5 | 5 1.5 4.5; a longer window covers the whole training."""
    validation = np.array([[[5.0, 4, 3, 2], [9.0, 1, 2, 7]]])
    assert select(validation, 2) == ((0, 1, 2), 1.5)
    assert select(validation, 9) == ((0, 0, 3), 3.5)


def test_claims_follow_the_wins():
    """VCL is best in three sets of six, BN in two, none in one; then the options are reversed."""
    errors = np.tile(np.eye(3)[[2, 2, 2, 1, 1, 0]] * -0.1 + 0.3, 3)
    assert [c.holds for c in findings_of(errors, Settings())][:7] == [True] * 7
    # SELU and ELU give way to ReLU where VCL is best.
    flipped = errors[:, ::-1] + [0, 0, 0, 0.01, 0, 0, 0.01, 0, 0]
    assert [c.holds for c in findings_of(flipped, Settings())][:7] == [False] * 7


def of_figure_1(method, seed, peak, modes):
    """Makes a run of two layers of two units; the second layer's have kurtosis 3."""
    place = {"method": method, "seed": seed, "layer": [1, 1, 2, 2], "unit": [0, 1, 0, 1]}
    several = [*(unit < modes for unit in range(2)), False, False]
    units = {**place, "kurtosis": [peak, peak, 3.0, 3.0], "multimodal": several}
    return pl.DataFrame({**units, "outcome": ""})


def test_figure_1_is_judged_over_paired_seeds():
    found = pl.concat(
        of_figure_1(method, seed, peak + 0.1 * seed, modes)
        for method, peak, modes in (("bn", 5.0, 0), ("vcl", 3.0, 1), ("none", 4.0, 0))
        for seed in range(3)
    )
    modes, first, second = fig1.findings_of(found)
    # The differences are the same under every seed: 25 points, -2, and nothing.
    assert (modes.holds, first.holds, second.reason) == (True, True, "undecided")
    assert modes.ours == "VCL 25.0 ± 0.0, BN 0.0 ± 0.0; none 0.0 ± 0.0"
    assert first.ours == "VCL 3.10 ± 0.10, BN 5.10 ± 0.10; none 4.10 ± 0.10"
    one = found.filter(seed=0)
    assert fig1.findings_of(one)[0].reason == "undecided"  # One seed decides nothing.
    outcome = pl.when(pl.col("method") == "vcl").then(pl.lit("diverged")).otherwise(pl.lit(""))
    lost = found.with_columns(outcome=outcome)
    assert fig1.findings_of(lost)[0].ours == "vcl diverged"
    assert {finding.reason for finding in fig1.findings_of(lost)} == {"not trained"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Writes two small data sets as files, one with splits and one without."""
    random = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("data")
    for name, rows, features, classes in (("one", 90, 5, 2), ("two", 80, 7, 4)):
        y = np.arange(rows, dtype=np.int32) % classes
        X = random.normal(size=(rows, features)) + 3 * np.eye(classes, features)[y]
        masks = {"test4": random.permuted(np.arange(4 * rows).reshape(4, rows) % 4 == 0, axis=1)}
        np.savez(root / f"{name}.npz", X=X, y=y, **(masks if name == "one" else {}))
    return root


TINY = ITEMS["vcl/tab4"].smoke.settings.changed(normalizations=("none",), depths=(1,))


def context(folder, out):
    return Context(folder, out, lambda fraction, what: None)


@pytest.mark.slow
def test_a_stopped_run_goes_on(folder, tmp_path, monkeypatch):
    chosen = train_all(TINY, context(folder, tmp_path))
    assert chosen.select("dataset", "seed").rows() == [
        *(("one", 0), ("one", 1), ("two", 0), ("two", 1)),
    ]
    assert {(*row,) for row in chosen.select("epoch", "depth").rows()} == {(3, 1)}
    assert chosen["test_error"].is_between(0, 1).all()

    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("DELETE FROM runs WHERE rowid > 3")
        database.commit()
    trained = []

    class Remembering(uci.Networks):
        def __call__(self, spec, keeper):
            trained.append((spec.data, spec.method, spec.seed))
            return super().__call__(spec, keeper)

    monkeypatch.setattr(uci, "Networks", Remembering)
    assert train_all(TINY, context(folder, tmp_path)).equals(chosen)
    assert trained == [("two", "none", 1)]
    widened = TINY.changed(normalizations=("none", "bn"))
    assert train_all(widened, context(folder, tmp_path))[:2].equals(chosen[:2])
    assert trained[1:] == [(name, "bn", seed) for name in ("one", "two") for seed in range(2)]


def test_validation_rows_are_the_last_training_rows():
    data = toy_dataset()
    rest, (X, y) = held_out(data, 0.2)
    np.testing.assert_array_equal(np.concatenate([rest.X_train, X]), data.X_train)
    np.testing.assert_array_equal(np.concatenate([rest.y_train, y]), data.y_train)
    assert (len(rest.y_train), len(y)) == (56, 14)


def test_without_data_one_line_says_what_is_wanted(tmp_path, capsys):
    for item in ("vcl/tab4", "vcl/fig1"):
        assert main(["paper", item, "--out", str(tmp_path)]) == 2
        printed = capsys.readouterr().err.splitlines()
        assert len(printed) == 1
        assert "--data-dir" in printed[0]
        assert "archive.ics.uci.edu" in printed[0]
