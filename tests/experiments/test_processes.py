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
from experiments.config import Config
from experiments.errors import UserError
from experiments.runs.processes import is_in_cluster, joined
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
    address = free_address()
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


def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


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


def test_a_comparison_of_two_processes_keeps_the_runs_of_the_first(folder):
    said = (folder / "err0.txt").read_text()
    assert "1 of 2 runs are kept from an earlier call." in said
    kept, added = rows_of(folder / "compared0" / "results.csv")
    assert (kept["method"], added["method"]) == ("none", "cwo")
    assert not (folder / "compared1").exists()


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


def ended(folder, *flags):
    """Runs a program with each of these flags; returns the last lines of those that end with 2."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
    command = [sys.executable, "-m", "experiments", "train", "--method", "none", "--depth", "1"]
    command += ["--dataset", str(folder / "toy.npz"), "--width", "4", "--epochs", "1000"]
    command += ["--coordinator", free_address(), "--processes", "2", "--process-id"]
    begun = [
        subprocess.Popen(
            [*command, str(number), "--out", str(folder / f"end{number}"), *each],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number, each in enumerate(flags)
    ]
    errors = [process.communicate(timeout=PATIENCE)[1].splitlines() for process in begun]
    assert [process.returncode for process in begun] == [2] * len(begun), errors
    assert all(sum(line.startswith("error: ") for line in lines) == 1 for lines in errors), errors
    return [lines[-1] for lines in errors]


def test_processes_that_disagree_end_before_the_first_step(folder):
    lines = ended(folder, ["--learning-rate", "0.05"], ["--learning-rate", "0.001"])
    assert all("learning-rate 0.05 on process 0 and 0.001 on process 1" in line for line in lines)


def test_a_folder_that_not_all_see_ends_all(folder):
    apart = [["--checkpoint-dir", str(folder / f"apart{number}"), "--resume"] for number in (0, 1)]
    for line in ended(folder, *apart):
        assert "process 1 does not see there what process 0 writes" in line


def test_a_process_that_waits_in_vain_says_so(folder):
    (line,) = ended(folder, ["--join-timeout", "1"])
    assert "within the 1 seconds of --join-timeout" in line


def test_addresses_that_no_process_can_join():
    with socket.create_server(("", 0)) as taken:
        addresses = f"localhost:{taken.getsockname()[1]}", "host.invalid:1234"
        for address in addresses:
            config = Config(coordinator=address, processes=2, process_id=0)
            with pytest.raises(UserError, match=f"cannot join .*{address}"):
                joined(config).__enter__()


@pytest.mark.parametrize(
    "given",
    [
        *(("", 2, 0), ("host:1", None, 0), ("host:1", 2, None), ("host:1", 2, 2)),
        *(("host", 2, 0), ("host:port", 2, 0), ("host:99999", 2, 0)),
    ],
)
def test_half_of_the_flags(given):
    with pytest.raises(UserError, match="wanted HOST:PORT, a number N and one of 0 to N - 1"):
        joined(Config(coordinator=given[0], processes=given[1], process_id=given[2])).__enter__()
