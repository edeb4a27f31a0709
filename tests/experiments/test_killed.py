"""Runs killed anywhere and resumed equal the uninterrupted run, bit for bit.

One kill; more with ``KILLS=20 python -m pytest -m slow tests/experiments/test_killed.py``.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from experiments.runs.checkpoints import Checkpoints
from tests.experiments.toy import rows_of, save_toy

KILLS = int(os.environ.get("KILLS", "1"))
EPOCHS = 8 * (KILLS + 2)
ROOT = Path(__file__).parents[2]


class Training:
    """A tiny run in its own process, with its folders under ``folder``."""

    def __init__(self, folder: Path, data: str):
        self.folder, self.data = folder, data
        self.out, self.checkpoints = folder / "out", folder / "checkpoints"

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-m", "experiments", "train", "--method", "cwo"]
        command += ["--dataset", self.data, "--depth", "1", "--width", "8", "--batch-size", "16"]
        command += ["--epochs", str(EPOCHS), "--checkpoint-dir", str(self.checkpoints)]
        command += ["--out", str(self.out), *more]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True
        )

    def epochs(self) -> list[int]:
        return sorted(int(x.name) for x in self.checkpoints.glob("*") if x.name.isdigit())

    def until(self, process: subprocess.Popen[str], epoch: int) -> None:
        """Waits until the process, still running, has a checkpoint of that epoch or later."""
        while max(self.epochs(), default=0) < epoch:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)

    def state(self, epoch: int) -> dict[str, np.ndarray]:
        path = self.checkpoints / str(epoch) / "state"
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            names = reader.metadata(path).item_metadata.tree
            as_numpy = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
            args = ocp.args.PyTreeRestore(restore_args=as_numpy)
            return reader.restore(path, args=args)

    def curve(self, epoch: int) -> list[list[float]]:
        with Checkpoints(str(self.checkpoints)) as checkpoints:
            return checkpoints.record(epoch)["history"]["curve"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def untouched(tmp_path_factory, data):
    training = Training(tmp_path_factory.mktemp("untouched"), data)
    process = training.start("--keep", str(EPOCHS))
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return training


def assert_same(training, untouched, epoch):
    mine, theirs = training.state(epoch), untouched.state(epoch)
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert mine[name].dtype == theirs[name].dtype, name
        assert mine[name].tobytes() == theirs[name].tobytes(), (epoch, name)
    assert training.curve(epoch) == untouched.curve(epoch)


def without_time(path):
    return [{**row, "step_ms": None} for row in rows_of(path)]


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical(untouched, data, tmp_path):
    training = Training(tmp_path, data)
    delays = random.Random(0)
    process = training.start("--resume")
    training.until(process, 1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert [line for line in err.splitlines() if line.startswith("stopped by a signal")]
    assert f"{training.epochs()[-1]}: --resume goes on from there." in err
    for _ in range(KILLS):
        newest = training.epochs()[-1]
        process = training.start("--resume")
        training.until(process, newest + 1)
        # A save takes most of an epoch's time: most kills hit one.
        time.sleep(delays.uniform(0, 0.6))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert_same(training, untouched, training.epochs()[-1])
    process = training.start("--resume")
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert f"resumed from {training.checkpoints}" in err
    assert_same(training, untouched, EPOCHS)
    curves = [(each.out / "curves.csv").read_bytes() for each in (training, untouched)]
    assert curves[0] == curves[1]
    results = [without_time(each.out / "results.csv") for each in (training, untouched)]
    assert results[0] == results[1]
