"""What a command imports before it works: help, lists and refusals need no JAX."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import jax
import pytest

from experiments import listed
from experiments.augmentation.table import AUGMENTATIONS
from experiments.bench.registry import BENCHMARKS
from experiments.cli import main
from experiments.methods.table import DEFAULT_METHODS, METHODS
from experiments.models.registry import MODELS
from experiments.models.style import ACTIVATIONS
from experiments.papers.items import ITEMS
from experiments.runs.store import Store
from tests.experiments.test_runs import run, spec

ROOT = Path(__file__).parents[2]

#: What takes long to import, and what only some of the commands use.
HEAVY = {
    *("jax", "flax", "optax", "jaxnorm", "orbax", "scipy", "matplotlib", "polars", "PIL"),
    *("joblib", "h5py"),
}

#: Runs a command in this interpreter, and prints what it imported last.
CODE = (
    "import sys; from experiments.cli import main\n"
    "try: status = main(sys.argv[1:])\n"
    "except SystemExit as ended: status = ended.code or 0\n"
    f"print(status, *sorted({HEAVY!r} & set(sys.modules)))"
)


def imported(arguments: list[str]) -> tuple[int, set[str]]:
    """Returns the exit status of a command in a fresh interpreter, and what it imported."""
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    status, *modules = done.stdout.splitlines()[-1].split()
    return int(status), set(modules)


@pytest.mark.kept("--help-0", "--epoch 3", "methods-0", "datasets-0")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        *[(line, 0) for line in ("--help", "compare --help", "--version", "methods", "datasets")],
        *[
            (line, 2)
            for line in (
                *("comapre", "compare --epoch 3", "compare digits", "compare --methods bm"),
                *("train --activation swish", "train --dataset Digits", "paper cwo/tb1"),
                *("bench stepp", "compare --epochs many", "train --augment flp", "--seeds 3"),
            )
        ],
    ],
)
def test_what_needs_no_network_imports_no_jax(line, status):
    assert imported(line.split()) == (status, set())


def test_the_runs_of_a_folder_need_a_table_alone(tmp_path):
    Store(tmp_path).add(spec(), run())
    assert imported(["runs", str(tmp_path)]) == (0, {"polars"})


def test_names_read_off_the_source_are_those_of_the_tables():
    assert listed.methods() == {name: method.summary for name, method in METHODS.items()}
    assert listed.DEFAULT_METHODS == DEFAULT_METHODS
    assert listed.models() == tuple(MODELS)
    assert listed.activations() == tuple(ACTIVATIONS)
    assert listed.augmentations() == tuple(AUGMENTATIONS)
    assert listed.benchmarks() == tuple(BENCHMARKS)
    assert sorted(listed.paper_items()) == sorted(ITEMS)


@pytest.mark.parametrize("error", [RuntimeError("no backend 'wrong'"), AssertionError()])
def test_a_platform_that_is_not_there_is_one_line(error, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("JAX_PLATFORMS", "wrong")
    monkeypatch.setattr(jax, "devices", mock.Mock(side_effect=error))
    assert main(["train", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "JAX does not start: " in line
    assert "JAX_PLATFORMS=wrong" in line
    assert not (tmp_path / "out").exists()


def test_an_option_that_jax_does_not_know_is_one_line():
    line = [sys.executable, "-m", "experiments", "train", "--out", "never"]
    bad = os.environ | {"JAX_DEFAULT_MATMUL_PRECISION": "bogus"}
    ended = subprocess.run(line, cwd=ROOT, env=bad, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "JAX does not start: " in line
    assert "JAX_DEFAULT_MATMUL_PRECISION=bogus" in line


def test_a_training_without_compilation_is_refused(capsys, tmp_path):
    with jax.disable_jit():
        assert main(["train", "--out", str(tmp_path / "out")]) == 2
    assert "JAX_DISABLE_JIT" in capsys.readouterr().err
