"""Trainings of a table in several processes: the same runs, whoever makes them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from experiments.cli import main
from experiments.errors import UserError
from experiments.jobs import _end_with, finished, share, take_share
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context
from experiments.papers.trainings import train_grid

ROOT = Path(__file__).parents[2]
PROTOCOL = Protocol(
    model="mlp", depth=1, width=4, epochs=2, batch_size=16, rows=64, test_rows=32, seeds=2
)
GRID = Grid((Cell("plain", "none"), Cell("normalized", "bn", changes={"width": 8})))


@pytest.mark.slow
def test_two_processes_make_the_runs_of_one(tmp_path):
    def runs(jobs):
        steps = []
        (tmp_path / str(jobs)).mkdir(exist_ok=True)
        context = Context(None, tmp_path / str(jobs), lambda part, _: steps.append(part), jobs)
        return train_grid(GRID, PROTOCOL, context), steps

    (one, steps), (two, same) = runs(1), runs(2)
    assert steps == same == [0.25, 0.5, 0.75, 1.0]
    assert runs(2) == (two, [])
    assert [(t.cell.name, t.seed) for t in one] == [(t.cell.name, t.seed) for t in two]
    for mine, theirs in zip(one, two, strict=True):
        # On other cores sums may be taken in another order.
        np.testing.assert_allclose(mine.run.curve, theirs.run.curve, rtol=1e-4)


def killed():
    """What makes no training, since the system ends its process."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_process_that_is_killed_is_told_in_a_line():
    with pytest.raises(UserError, match="one of the 2 processes of --jobs was killed"):
        list(finished([("a", 0), ("a", 1)], killed, 2))


class Waits:
    """A training that says that it has begun, and does not end."""

    def __init__(self, place):
        self.place = place

    def __call__(self, what, seed):
        (self.place / str(seed)).write_text(str(os.getpid()))
        threading.Event().wait()


@pytest.mark.slow
def test_no_process_outlives_the_one_that_waits_for_it(tmp_path):
    """As after ``kill -9``, which lets nothing be tidied up: it would train and hold its GPU."""
    code = (
        "import functools, pathlib, sys; from experiments.jobs import finished; "
        "from tests.experiments.test_jobs import Waits; "
        "make = functools.partial(Waits, pathlib.Path(sys.argv[1])); "
        "list(finished([('a', 0), ('a', 1)], make, 2))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    while len(begun := [path.read_text() for path in tmp_path.iterdir()]) < 2 or "" in begun:
        assert parent.poll() is None
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    ends = time.monotonic() + 60
    while any(is_alive(int(process)) for process in begun):
        assert time.monotonic() < ends
        time.sleep(0.01)


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_process_ends_when_nobody_holds_its_lifeline(monkeypatch):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    lifeline, held = multiprocessing.Pipe(duplex=False)
    held.close()
    _end_with(lifeline)
    assert ended == [1]


def test_every_job_gets_its_share():
    assert [share(range(5), place, 2) for place in range(2)] == [[0, 2, 4], [1, 3]]
    assert [share(["0"], place, 3) for place in range(3)] == [["0"]] * 3


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


def test_there_is_at_least_one_job(capsys, tmp_path):
    with pytest.raises(UserError, match="--jobs is 0; it must be 1 or more"):
        list(finished([], lambda: None, 0))
    command = ["paper", "cwo/tab1", "--preset", "smoke", "--jobs", "0", "--out", str(tmp_path)]
    assert main(command) == 2
    assert "--jobs" in capsys.readouterr().err
