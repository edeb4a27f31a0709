"""Trainings of a table in several processes: the same runs, whoever makes them."""

import os

import numpy as np
import pytest

from experiments.cli import main
from experiments.errors import UserError
from experiments.jobs import finished, share, take_share
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context
from experiments.papers.trainings import train_grid

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
