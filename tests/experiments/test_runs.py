"""Trainings as rows: specs, the store, and several processes at once."""

import contextlib
import functools
import itertools
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from experiments.analysis.finished import frame, summary
from experiments.analysis.statistics import above, deciding_look, interval, place
from experiments.config import Config, Workers
from experiments.errors import UserError
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context
from experiments.papers.training import train_grid
from experiments.runs import store as store_of_runs
from experiments.runs.comparison import Comparison, execute, seconds_left
from experiments.runs.jobs import take_share
from experiments.runs.spec import FREE, OFFSET, PROGRAMS, SHOWN, Spec, parts_beside
from experiments.runs.store import Store
from experiments.training.fit import outcome
from experiments.training.run import Epoch, Run
from tests.experiments.test_full_disk import full_disk
from tests.experiments.toy import save_toy

ROOT = Path(__file__).parents[2]
PROTOCOL = Protocol(
    model="mlp", depth=1, width=4, epochs=2, batch_size=16, train_rows=64, test_rows=32, seeds=2
)
GRID = Grid((Cell("plain", "none"), Cell("normalized", "bn", changes={"width": 8})))


def spec(seed=0, method="bn", **changes):
    """Makes a spec with parts as a process of these versions and options has them."""
    made = Spec(method, seed, Config(), tuple(changes.items()))
    programs = dict.fromkeys(PROGRAMS, str(changes))
    return made.made_of({**programs, **parts_beside(made.described, "0")})


def run(accuracy=0.5, seed=0, method="bn", loss=1.0, outcome=""):
    curve = [Epoch(1, loss, 0.1, 1 / 3, accuracy, 1.0, 1.0, 0.0)]
    return Run(method, seed, curve, 1.5, 10, None, outcome, (), {"top5_accuracy": 0.9})


def test_the_time_that_is_left_counts_a_compilation_per_method():
    two_methods = [spec(seed, method) for method in ("bn", "none") for seed in range(3)]
    assert seconds_left([5.0, 15.0, 17.0], two_methods) == 10 + 3 * 2


def test_flags_that_a_network_of_ones_own_has_no_use_for_make_no_other_run():
    own, built_in = (
        Spec("none", 0, Config(model=model, channels=8)) for model in ("net.py:Net", "cnn9")
    )
    for each, same in ((own, True), (built_in, False)):
        assert each.like(replace(each, config=each.config.changed(channels=16)).described) == same
        assert not each.like(replace(each, config=each.config.changed(epochs=3)).described)


def test_a_digest_follows_its_parts_and_nothing_else():
    usual = Spec("bn", 0, Config()).made_of({"step": "1", "rows": "2"})
    for same in (
        replace(usual, config=Config(dataset="elsewhere", epochs=3)),
        replace(usual, changes=(("epochs", Config().epochs),)),
        Spec("bn", 0, Config()).made_of({"rows": "2"}).made_of({"step": "1"}),
    ):
        assert same.digest == usual.digest
    others = [
        replace(usual, method="none"),
        replace(usual, seed=1),
        *[usual.made_of({name: "3"}) for name in ("step", "rows", "versions")],
    ]
    assert len({each.digest for each in (usual, *others)}) == 6


def test_settings_that_no_program_shows_are_a_part():
    def settings(config):
        return parts_beside(Spec("bn", 0, config).described, "0")["settings"]

    usual = settings(Config())
    assert settings(Protocol(seeds=3)) == settings(Protocol(seeds=10))
    for shown in (Config(width=3, dataset="x"), Config(tensorboard=Path("x"), mesh="data=2")):
        assert settings(shown) == usual
    hidden = (Config(epochs=3), Config(augment="flip"), Config(clients=2), Config(batch_size=8))
    assert len({usual, *map(settings, hidden)}) == 5

    @dataclass(frozen=True)
    class Moved(Config):
        learning_rate: float = 0.1
        weight_decay: float = 0.0

    here, usual_values = Moved(learning_rate=0.05, weight_decay=1e-3), Config()
    assert settings(here) == settings(usual_values) != settings(Moved())
    assert settings(Moved()) == settings(Config(learning_rate=0.1, weight_decay=0.0))
    named = {*asdict(Config()), *asdict(Protocol())} - SHOWN - FREE
    assert named == {
        *("epochs", "batch_size", "augment", "clients", "policies", "side", "scores"),
        *("learning_rate", "weight_decay", "rate_scale"),
    }, "a new setting is in the key by its name, or among SHOWN"


def test_rows_and_names_of_classes_belong_to_the_data_and_their_path_does_not(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2

    def rows(name, X, names):
        np.savez(tmp_path / name, X=X, y=np.array(names)[y])
        comparison = Comparison(Config(dataset=str(tmp_path / name)))
        return comparison.parts_beside(Spec("bn", 0, comparison.config))["rows"]

    usual = rows("rows.npz", X, ["cat", "dog"])
    assert rows("elsewhere.npz", X, ["cat", "dog"]) == usual
    others = (
        rows("rows.npz", X, ["no", "yes"]),
        rows("rows.npz", X.reshape(40, 2, 2), ["cat", "dog"]),
    )
    assert len({usual, *others}) == 3


def test_a_store_gives_back_what_it_was_given(tmp_path):
    store, lost = Store(tmp_path), run(math.nan, 1, loss=math.inf, outcome="diverged, at step 2")
    assert store.finished([spec()]) == {}
    assert list(tmp_path.iterdir()) == []  # To look writes nothing.
    store.add(spec(), run())
    store.add(spec(1, noise=0.1), lost)
    stored = store.finished([spec(), spec(1, noise=0.1)])
    assert stored[spec()] == run()
    found = stored[spec(1, noise=0.1)]
    assert found.changes == (("noise", 0.1),)
    assert found.curve[0][1] == math.inf
    assert math.isnan(found.curve[0].test_accuracy)
    assert (found.outcome, found.scores) == (lost.outcome, lost.scores)
    store.add(spec(), run(0.75))
    assert [row.run.curve[-1].test_accuracy for row in store.rows()][1:] == [0.75]
    assert [path.name for path in tmp_path.iterdir()] == ["runs.sqlite"]


@pytest.mark.slow
def test_two_programs_on_one_folder_lose_nothing(tmp_path):
    npz, out = save_toy(tmp_path), tmp_path / "out"
    command = ["compare", "--dataset", npz, "--seeds", "2", "--model", "mlp", "--depth", "1"]
    command += ["--width", "4", "--epochs", "1", "--batch-size", "16", "--out", str(out)]
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "experiments", *command, "--methods", name], cwd=ROOT
        )
        for name in ("none", "bn")
    ]
    assert [process.wait() for process in begun] == [0, 0]
    found = {(row.run.method, row.run.seed) for row in Store(out).rows()}
    assert found == {(method, seed) for method in ("none", "bn") for seed in (0, 1)}


def test_a_store_on_a_full_disk_stays_as_it_was(tmp_path):
    store = Store(tmp_path)
    store.add(spec(), run())
    large = run()._replace(curve=[Epoch(n, 1 / 3, 0.5, 0.5, 0.5) for n in range(20_000)])
    with full_disk(65_536), pytest.raises(UserError, match="free it or change --out") as error:
        store.add(spec(1), large)
    assert str(store.path) in str(error.value)
    assert [row.run for row in store.rows()] == [run()]


def test_a_store_that_another_program_keeps_locked_is_named_so(tmp_path, monkeypatch):
    monkeypatch.setattr(store_of_runs, "_PATIENCE", 0.1)
    store = Store(tmp_path)
    store.add(spec(), run())
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as browser:
        browser.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match=r"is locked; wanted no other program.* locked\.$"):
            store.add(spec(1), run())
    store.add(spec(1), run())


@pytest.mark.parametrize("lost", ["moved", "full"])
def test_a_run_that_cannot_be_stored_is_shown_first(tmp_path, lost):
    store = Store(tmp_path / "moved" if lost == "moved" else tmp_path)
    runs = execute([spec()], lambda: lambda spec, keeper: run(), store)
    with full_disk(0):
        assert next(runs) == (spec(), run(), False)
    with pytest.raises(UserError, match=r"is not kept: .* free it or change --out") as error:
        next(runs)
    assert "remove it" not in str(error.value)


def test_a_summary_leaves_out_what_did_not_train_and_settings_are_columns(tmp_path):
    store = Store(tmp_path)
    for seed, accuracy in enumerate((0.5, 0.7, 0.9)):
        store.add(spec(seed, noise=0.1), run(accuracy, seed))
    store.add(spec(3, noise=0.1), run(math.nan, 3, outcome="diverged"))
    store.add(spec(0), run(0.25))
    store.add(spec(0, epochs=20), run(0.5))
    before = spec(4, noise=0.1).made_of({"step": "before an edit"})
    store.add(before, run(0.1, 4))
    rows = store.rows()
    assert summary(frame(rows))["runs"].to_list() == [4, 1, 1, 1]
    runs = frame(rows[:-1])
    assert runs["noise"].to_list() == ["0.1"] * 4 + [None] * 2
    assert np.isnan(runs["test_accuracy"][3])
    with_noise, without, longer = summary(runs).rows(named=True)
    assert [each["epochs"] for each in (with_noise, without, longer)] == ["10", "10", "20"]
    assert (with_noise["runs"], with_noise["failed"], without["runs"]) == (4, 1, 1)
    assert (with_noise["lowest_accuracy"], with_noise["highest_accuracy"]) == (0.5, 0.9)
    assert (without["lowest_accuracy"], without["highest_accuracy"]) == (0.25, 0.25)


def test_trials_of_tuning_are_told_from_results(tmp_path):
    store = Store(tmp_path)
    store.add(spec(), run(0.5))
    assert "tested on" not in frame(store.rows()).columns
    store.add(spec(OFFSET), run(0.6, OFFSET))
    made = summary(frame(store.rows()))
    assert made["tested on"].to_list() == ["test rows", "held-out rows, a trial"]


def test_the_interval_is_that_of_a_printed_table():
    low, high = interval(np.array([1.0, 2.0, 3.0]))
    assert (low, high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), rel=1e-6)
    assert interval(np.array([2.0])) == (-math.inf, math.inf)
    assert interval(np.array([2.0, 2.0])) == (2.0, 2.0)


@pytest.mark.parametrize("true", [-2.0, -0.8, -0.45, 0.0, 0.9, 1.0, 1.6])
def test_intervals_that_hold_the_difference_never_have_words_that_exclude_each_other(true):
    """The words of 300 draws of a difference name its true place, whenever the interval holds it.

    By the sign alone -0.3 [-0.7, +0.2] is level and -0.9 [-1.6, -0.1] behind, and both hold -0.45.
    """
    where = "level" if abs(true) <= 1 else "ahead" if true > 0 else "behind"
    draws = np.random.default_rng(0).normal(true, 0.5, (300, 6))
    held = [(low, high) for low, high in map(interval, draws) if low <= true <= high]
    assert 0.9 < len(held) / len(draws) < 0.99
    words = {place(low, high, 1.0) for low, high in held}
    assert all(word == "open" or where in word.split(" or ") for word in words)
    assert place(-0.7, 0.2, 1) == "level"
    assert place(-1.6, -0.1, 1) == "level or behind"


def test_a_place_is_mirrored_with_its_difference():
    """Ends on a grid that has both bounds: the word of [-high, -low] is that of [low, high]."""
    ends = np.arange(-2.5, 3, 0.5)
    turned = {"ahead": "behind", "behind": "ahead"}
    for low, high in itertools.combinations_with_replacement(ends, 2):
        words = place(low, high, 1.0).split()
        assert [turned.get(word, word) for word in words] == place(-high, -low, 1.0).split()
        assert place(low, high, 0.0) in ("ahead", "behind", "open")


@pytest.mark.slow
def test_three_looks_together_miss_about_as_often_as_one_interval():
    """Differences have mean 0; three looks at 95% would err in one of nine cases."""
    differences = np.random.default_rng(0).normal(size=(1000, 10))
    found = [above(*deciding_look(each, above)[1]) for each in differences]
    assert abs(np.mean([each is not None for each in found]) - 0.056) < 0.03
    seen, (low, _) = deciding_look(np.array([1.0, 1.1, 0.9, *[-9.0] * 7]), above)
    assert len(seen) == 3
    assert low > 0
    assert deciding_look(differences[0, :2], above)[1] == (-math.inf, math.inf)


def test_a_run_that_is_right_everywhere_is_not_at_chance():
    """Small logits separate two classes, which the loss alone does not show."""
    labels = np.arange(100) % 2
    assert outcome(Epoch(1, 0.683, 1.0, 0.683, 1.0), labels) == ""
    assert outcome(Epoch(1, 0.683, 0.5, 0.683, 1.0), labels) == ""
    assert outcome(Epoch(1, 0.683, 0.5, 0.683, 0.5), labels) == "at chance"
    assert outcome(Epoch(1, 0.1, 0.5, 0.683, 0.5), labels) == ""
    assert outcome(Epoch(1, math.nan, 1.0, 0.683, 1.0), labels) == "diverged"
    assert outcome(Epoch(1, 0.683, 1.0, math.nan, 0.5), labels) == "diverged"
    assert outcome(Epoch(1, 0.1, 1.0, math.inf, 0.5), labels) == "diverged"


@pytest.mark.slow
def test_two_processes_make_the_runs_of_one(tmp_path):
    def runs(jobs):
        steps = []
        (tmp_path / str(jobs)).mkdir(exist_ok=True)
        context = Context(
            None, tmp_path / str(jobs), lambda part, _: steps.append(part), Workers(jobs=jobs)
        )
        return train_grid(GRID.cells, PROTOCOL, context), steps

    (one, steps), (two, same) = runs(1), runs(2)
    assert steps == same == [0.25, 0.5, 0.75, 1.0]
    assert runs(2) == (two, [])
    for mine, theirs in zip(one, two, strict=True):
        assert mine.cell == theirs.cell
        assert [run.seed for run in mine.runs] == [run.seed for run in theirs.runs] == [0, 1]
        for one_run, other in zip(mine.runs, theirs.runs, strict=True):
            # On other cores sums may be taken in another order.
            np.testing.assert_allclose(one_run.curve, other.curve, rtol=1e-4)


class Killed:
    """A training whose process the system kills, always or only the first time."""

    def __init__(self, place, always):
        self.place, self.always = place, always

    def __call__(self, spec, keeper):
        if spec.seed == 0 and (self.always or not (self.place / "killed").exists()):
            (self.place / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run(seed=spec.seed)


@pytest.mark.slow
def test_a_process_that_is_killed_loses_its_own_run_alone(tmp_path):
    said, store, specs = [], Store(tmp_path), [spec(seed) for seed in range(4)]
    make = functools.partial(Killed, tmp_path, False)
    found = [each.seed for each, _, _ in execute(specs, make, store, Workers(jobs=2), said.append)]
    assert sorted(found) == [0, 1, 2, 3] == sorted(row.run.seed for row in store.rows())
    (line,) = said
    assert "the process of bn, seed 0 was killed" in line
    assert "1 of the processes" in line


@pytest.mark.slow
def test_the_last_process_that_is_killed_is_told_in_a_line(tmp_path):
    make = functools.partial(Killed, tmp_path, True)
    with pytest.raises(UserError, match=r"seed 0 was killed, .* take fewer --jobs"):
        list(execute([spec(seed) for seed in range(2)], make, Store(tmp_path), Workers(jobs=2)))


class Waits:
    """A training that reports its start, and does not end."""

    def __init__(self, place):
        self.place = place

    def __call__(self, spec, keeper):
        (self.place / str(spec.seed)).write_text(str(os.getpid()))
        threading.Event().wait()


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_one_that_waits_for_it(tmp_path, ended_by):
    """Workers also end after ``kill -9`` of the parent, which cannot clean up."""
    code = (
        "import functools, pathlib, sys; from experiments.runs.comparison import execute; "
        "from experiments.runs.store import Store; from experiments.config import Workers; "
        "from tests.experiments.test_runs import Waits, spec; place = pathlib.Path(sys.argv[1]); "
        "make = functools.partial(Waits, place); "
        "list(execute([spec(0), spec(1)], make, Store(place), Workers(jobs=2)))"
    )
    command, said = [sys.executable, "-c", code, str(tmp_path)], tmp_path.parent / "said.txt"
    with said.open("w") as errors:
        parent = subprocess.Popen(command, cwd=ROOT, stderr=errors)
    while len(begun := [path.read_text() for path in tmp_path.glob("[01]")]) < 2 or "" in begun:
        assert parent.poll() is None
        time.sleep(0.01)
    parent.send_signal(ended_by)
    assert parent.wait(60) != 0
    ends = time.monotonic() + 60
    while any(is_alive(int(process)) for process in begun):
        assert time.monotonic() < ends
        time.sleep(0.01)
    assert ended_by != signal.SIGTERM or "leaked" not in said.read_text()


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_process_keeps_to_its_share(monkeypatch):
    kept = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2,5")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(
        "os.sched_setaffinity", lambda process, cores: kept.append(cores), raising=False
    )
    take_share(1, 2)
    assert kept == [[1, 3]]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
