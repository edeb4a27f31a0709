"""Two processes of two devices each train over the loopback interface as one process does.

At the end one of them gets a signal, and both exit.
"""

import os
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.cli import main
from experiments.errors import UserError
from experiments.runs.processes import is_in_cluster, join
from tests.experiments.parallel import DATA, assert_same, on_one_device, placement
from tests.experiments.toy import rows_of
from tests.experiments.two_processes import ENTRIES, flags

#: Each test here takes many seconds.
pytestmark = pytest.mark.slow

#: Seconds after which a process that waits for the other in vain is ended.
PATIENCE = 480


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder with the files of two processes, and their output: out0.txt, err0.txt."""
    folder = tmp_path_factory.mktemp("two")
    test = np.arange(len(DATA.X_train) + len(DATA.X_test)) >= len(DATA.X_train)
    X, y = np.concatenate([DATA.X_train, DATA.X_test]), np.concatenate([DATA.y_train, DATA.y_test])
    np.savez(folder / "toy.npz", X=X, y=y, test=test)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "tests.experiments.two_processes"]
    started = [
        subprocess.Popen(
            [*command, str(number), address, str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for number in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, outputs, strict=True):
        assert process.returncode == 128 + signal.SIGTERM, errors
    for number, (_, errors) in enumerate(outputs):
        (folder / f"err{number}.txt").write_text(errors)
    return folder


def result(path):
    (row,) = rows_of(path / "results.csv")
    return {name: value for name, value in row.items() if name != "step_ms"}


def test_the_command_line_on_two_processes(folder):
    assert main(flags(folder, "one")) == 0
    one, two = result(folder / "one"), result(folder / "process0")
    assert two.keys() == one.keys()
    for name in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
        assert float(two[name]) == pytest.approx(float(one[name]), rel=1e-4), name


def test_one_process_writes(folder):
    assert not (folder / "process1").exists()
    assert "| cwo" in (folder / "out0.txt").read_text()
    assert (folder / "out1.txt").read_text() == ""


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_process_feeds_its_own_rows(folder, entry):
    """All methods reach the state of one device."""
    wanted = on_one_device()
    for number in range(2):
        with np.load(folder / f"{entry}{number}.npz") as got:
            assert_same(jax.tree.unflatten(jax.tree.structure(wanted), got.values()), wanted)


def test_a_signal_to_one_process_stops_both_after_the_same_epoch(folder):
    said = [(folder / f"err{number}.txt").read_text() for number in range(2)]
    stops = [[line for line in text.splitlines() if "stopped by a signal" in line] for text in said]
    epochs = sorted(int(path.name) for path in (folder / "kept").glob("[0-9]*"))
    end = f"stopped by a signal after epoch {epochs[-1]} of 1000; saved as {folder / 'kept'}"
    assert stops == [[f"{end}/{epochs[-1]}: --resume goes on from there."]] * 2


def test_one_process_has_all_rows():
    for where in (placement("jit", 1), placement("jit", 8), placement("jit", 8, "model=8")):
        np.testing.assert_array_equal(where.own_rows(32), np.arange(32))


def test_when_processes_find_each_other_by_themselves():
    assert is_in_cluster({"SLURM_STEP_NUM_TASKS": "2"})
    assert is_in_cluster({"TPU_WORKER_HOSTNAMES": "10.0.0.1,10.0.0.2"})
    assert not is_in_cluster({"SLURM_STEP_NUM_TASKS": "1", "TPU_WORKER_HOSTNAMES": "localhost"})


@pytest.mark.parametrize(
    "given", [("", 2, 0), ("host:1", None, 0), ("host:1", 2, None), ("host:1", 2, 2)]
)
def test_half_of_the_flags(given):
    with pytest.raises(UserError, match="wanted HOST:PORT, a number N and one of 0 to N - 1"):
        join(*given)
