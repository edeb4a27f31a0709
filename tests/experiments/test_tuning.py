"""The choice of settings for each method on held-out training rows."""

import math

import numpy as np
import pytest

from experiments.analysis.tuning.choose import best_of
from experiments.analysis.tuning.grid import combinations, grid_of
from experiments.analysis.tuning.held_out import held_out
from experiments.analysis.tuning.report import choices_at_ends
from experiments.cli import main
from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.runs.comparison import Comparison, with_others
from experiments.runs.outputs import earlier_note
from experiments.runs.spec import OFFSET, name_of
from experiments.runs.store import Store
from tests.experiments.toy import rows_of, run_of, save_toy, toy_dataset

TINY = ["--depth", "1", "--width", "8", "--epochs", "2", "--batch-size", "16", "--model", "mlp"]


@pytest.fixture(scope="module")
def npz(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def tuned(npz, tmp_path_factory):
    """Tunes over rates that learn, and diverge without normalization."""
    out = tmp_path_factory.mktemp("tuned")
    grid = ["--tune", "learning-rate=0.1,1e30", "noise=0.1,0.2"]
    command = ["compare", "--dataset", npz, "--methods", "none,cwo", "--seeds", "2", *TINY]
    assert main([*command, *grid, "--out", str(out)]) == 0
    return out, [*command, *grid]


@pytest.mark.slow
def test_every_method_has_the_combinations_that_mean_something_to_it(tuned):
    trials = rows_of(tuned[0] / "tuning.csv")
    found = [
        tuple(row[name] for name in ("method", "seed", "learning_rate", "noise")) for row in trials
    ]
    rates = ("0.1", "1e+30")
    plain = [("none", seed, rate, "") for rate in rates for seed in "01"]
    noisy = [("cwo", seed, rate, s) for rate in rates for s in ("0.1", "0.2") for seed in "01"]
    assert found == plain + noisy


@pytest.mark.slow
def test_the_best_of_each_seed_is_chosen_and_trained_anew(tuned, npz, tmp_path):
    out, _ = tuned
    trials, results = rows_of(out / "tuning.csv"), rows_of(out / "results.csv")
    for result in results:
        own = [t for t in trials if (t["method"], t["seed"]) == (result["method"], result["seed"])]
        (chosen,) = [trial for trial in own if trial["chosen"] == "1"]
        finite = [t for t in own if t["held_out_accuracy"] != "nan"]
        assert float(chosen["held_out_accuracy"]) == max(
            float(t["held_out_accuracy"]) for t in finite
        )
        assert [result[name] for name in ("learning_rate", "noise")] == [
            chosen[name] for name in ("learning_rate", "noise")
        ]
    # The run of the result is the ordinary one with these settings.
    last = results[-1]
    command = ["train", "--dataset", npz, "--method", "cwo", "--seed", last["seed"], *TINY]
    flags = ["--learning-rate", last["learning_rate"], "--noise", last["noise"]]
    assert main([*command, *flags, "--out", str(tmp_path)]) == 0
    (same,) = rows_of(tmp_path / "results.csv")
    for name in same.keys() - {"step_ms"}:
        assert same[name] == last[name], name


@pytest.mark.slow
def test_finished_trials_are_kept(tuned, capsys):
    out, command = tuned
    assert main([*command, "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "12 of 12 runs are kept" in said
    assert "4 of 4 runs are kept" in said


def test_a_tuned_comparison_shows_its_own_runs_alone(npz, tmp_path):
    """A run of the folder at the usual rate is shown without --tune, and not beside a choice."""
    settings = {"depth": 1, "width": 8, "epochs": 2, "batch_size": 16, "model": "mlp"}
    comparison, store = Comparison(Config(dataset=npz, **settings)), Store(tmp_path)
    plain, earlier = comparison.specs([("none", (), 0), ("none", (), 2)])
    store.add(earlier, run_of("none", 2, 0.5))
    runs, rate = [run_of("none", 0, 0.5)], ("learning_rate", 0.1)
    assert [run.seed for run in with_others(comparison, store, [plain], runs)] == [0, 2]
    (tuned,) = comparison.specs([("none", (rate,), 0)])
    grid = {"learning_rate": (0.05, 0.1)}
    assert with_others(comparison, store, [tuned], runs, grid) == runs


def test_files_of_an_earlier_choice_are_named(tmp_path):
    assert earlier_note(tmp_path, []) == []
    for name in ("table.md", "tuning.csv", "rates.png"):
        (tmp_path / name).touch()
    (line,) = earlier_note(tmp_path, ["masks.png"])
    assert line == "Of an earlier call, not of these runs: tuning.csv, rates.png."
    assert earlier_note(tmp_path, ["tuning.csv", "tuning.png", "rates.png"]) == []


def test_trials_see_training_rows_alone_and_each_of_them_once():
    data = toy_dataset()
    rows = np.arange(70, dtype=np.float32)[:, None] + np.zeros((1, 2), np.float32)
    blind = Dataset(rows, data.y_train, None, None, "toy", 3)
    trial = held_out(lambda seed: {3: blind}[seed], 3 + OFFSET)
    assert (len(trial.X_train), len(trial.X_test)) == (56, 14)
    both = np.concatenate([trial.X_train, trial.X_test])[:, 0]
    # Standardized anew, which keeps the order: the numbers of the rows come back.
    numbers = np.argsort(np.argsort(both))
    assert sorted(numbers) == list(range(70))
    np.testing.assert_array_equal(
        np.concatenate([trial.y_train, trial.y_test]), data.y_train[numbers]
    )
    np.testing.assert_allclose(trial.X_train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(trial.X_train.std(0), 1, rtol=1e-6)


def test_other_seeds_hold_out_other_rows():
    data = toy_dataset()
    first, second = (held_out(lambda seed: data, seed + OFFSET).y_test for seed in range(2))
    assert np.any(first != second)


def run_with(accuracy, loss, rate, outcome=""):
    run = run_of("bn", OFFSET, accuracy, loss)
    return run._replace(outcome=outcome, changes=(("learning_rate", rate),))


def test_equal_accuracies_are_told_apart_by_the_loss_and_divergence_comes_last():
    lost = run_with(math.nan, math.nan, 0.9, "diverged")
    runs = [lost, run_with(0.5, 0.8, 0.1), run_with(0.5, 0.7, 0.2), run_with(0.4, 0.1, 0.3)]
    assert best_of("bn", 0, runs) is runs[2]
    assert best_of("bn", 0, [lost]) is lost


def test_an_end_of_the_grid_is_said():
    grid = {"learning_rate": [0.1, 0.2, 0.3]}
    said = choices_at_ends(grid, [run_with(0.5, 1.0, 0.3), run_with(0.5, 1.0, 0.2)])
    assert said == ["bn chose learning rate 0.3, an end of the grid: try values beyond."]
    assert choices_at_ends({"learning_rate": [0.2, 0.3]}, [run_with(0.5, 1.0, 0.3)]) == []


def test_whole_numbers_stay_whole():
    grid = grid_of(["batch-size=32", "sample_size=3", "noise=0.1"])
    (changes,) = combinations(METHODS["vcl"], grid)
    assert changes == (("batch_size", 32), ("sample_size", 3))
    assert [type(value) for _, value in changes] == [int, int]


WRONG = {
    "learning-rat=0.1": "learning-rate",
    "epochs=1,2": "epochs",
    "learning-rate=0.1,x": "'x' is no float",
    "noise=0.1,-1": "each 0 to 1,000",
    "noise=0.1,0.2,1e-1": "a value twice",
}


@pytest.mark.parametrize("written", WRONG)
def test_wrong_grids_get_one_line(written, tmp_path, capsys):
    assert main(["compare", "--tune", written, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert WRONG[written] in said
    assert said.count("\n") == 1


def test_more_seeds_of_trials_than_of_results_are_refused(npz, tmp_path, capsys):
    command = ["compare", "--dataset", npz, "--methods", "none", "--seeds", "3", *TINY]
    tune = ["--tune", "learning-rate=0.05,0.1", "--tune-seeds", "5"]
    assert main([*command, *tune, "--out", str(tmp_path)]) == 2
    assert "--tune-seeds is 5, and --seeds 3" in capsys.readouterr().err


def test_rows_that_are_too_few_to_hold_some_out():
    few = toy_dataset(rows=4)
    with pytest.raises(
        UserError, match=r"holds out one in 5 training rows, and those of toy are 4"
    ):
        held_out(lambda seed: few, OFFSET)


def test_values_that_differ_have_names_that_differ():
    """Tables identify runs by these names."""
    grid = grid_of(["learning-rate=0.1,0.1000001,1e-7,100", "batch-size=1000000,1000001"])
    made = [name_of("none", changes) for changes in combinations(METHODS["none"], grid)]
    assert len(set(made)) == len(made) == 8
    assert made[0] == "none learning_rate=0.1 batch_size=1e+06"
    assert made[3] == "none learning_rate=0.1000001 batch_size=1000001"
