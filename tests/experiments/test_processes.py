"""Two processes of two devices each, over the loopback interface, train as one process does."""

import csv
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from experiments._cli import main
from experiments._errors import UserError
from experiments.training import join
from experiments.training._processes import is_of_a_cluster
from tests.experiments.parallel import DATA, placement
from tests.experiments.two_processes import flags, train_on_own_rows

#: Each test here takes many seconds.
pytestmark = pytest.mark.slow

#: Seconds after which a process that waits for the other in vain is ended.
PATIENCE = 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes wrote; their outputs are in out0.txt and out1.txt."""
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
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
        )
        for number in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, outputs, strict=True):
        assert process.returncode == 0, errors
    for number, (printed, _) in enumerate(outputs):
        (folder / f"out{number}.txt").write_text(printed)
    return folder


def result(path):
    with (path / "results.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    return {name: value for name, value in row.items() if name != "step_ms"}


def test_the_command_line_on_two_processes(folder):
    assert main(flags(folder, "one")) == 0
    one, two = result(folder / "one"), result(folder / "process0")
    assert two.keys() == one.keys()
    for name in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
        assert float(two[name]) == pytest.approx(float(one[name]), rel=1e-4), name


def test_one_process_writes(folder):
    assert not (folder / "process1").exists()
    assert "| cwo " in (folder / "out0.txt").read_text()
    # Nothing but what the transport prints of itself.
    lines = (folder / "out1.txt").read_text().splitlines()
    assert not [line for line in lines if not line.startswith("[Gloo]")]


def test_each_process_feeds_its_own_rows(folder):
    wanted = train_on_own_rows()
    for number in range(2):
        with np.load(folder / f"parameters{number}.npz") as got:
            for name, leaf in zip(got.files, wanted, strict=True):
                np.testing.assert_allclose(got[name], leaf, rtol=2e-5, atol=2e-6)


def test_one_process_has_all_rows():
    for where in (placement("jit", 1), placement("jit", 8), placement("jit", 8, "model=8")):
        np.testing.assert_array_equal(where.own_rows(32), np.arange(32))


def test_when_processes_find_each_other_by_themselves():
    assert is_of_a_cluster({"SLURM_STEP_NUM_TASKS": "2"})
    assert is_of_a_cluster({"TPU_WORKER_HOSTNAMES": "10.0.0.1,10.0.0.2"})
    assert not is_of_a_cluster({"SLURM_STEP_NUM_TASKS": "1", "TPU_WORKER_HOSTNAMES": "localhost"})


@pytest.mark.parametrize(
    "given", [("", 2, 0), ("host:1", None, 0), ("host:1", 2, None), ("host:1", 2, 2)]
)
def test_half_of_the_flags(given):
    with pytest.raises(UserError, match="wanted HOST:PORT, a number N and one of 0 to N - 1"):
        join(*given)
