"""The benchmarks run and write what they print, at sizes that take no time."""

import csv
from pathlib import Path

import numpy as np
import pytest

from experiments.bench import registry
from experiments.bench.table import Measurements
from experiments.cli import main
from experiments.runs.timing import in_turn

SMALL = ["--depth", "1", "--batch-size", "16", "--repeats", "1"]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_runs_once_a_round_in_an_order_that_changes() -> None:
    ran: list[str] = []
    calls = {name: lambda name=name: ran.append(name) for name in "abc"}
    found = in_turn(calls, 20, lambda call: call() or len(ran))
    rounds = np.reshape(ran, (21, 3)).tolist()
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 3
    assert [ran[place - 1] for place in found["b"]] == ["b"] * 20
    assert min(found["a"]) > 3  # The first call of each is not measured.


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "transformer-unscaled"])
def test_step(tmp_path: Path, model: str) -> None:
    command = ["bench", "step", "--model", model, "--width", "8", *SMALL, "--methods", "rms"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    rows = {row["method"]: float(row["gflops"]) for row in rows_of(tmp_path / "step.csv")}
    assert rows["none"] == rows["none (control)"] < rows["rms"]


def test_a_benchmark_prints_and_writes_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Measurements(("a", "b", "b_low", "b_high"), [("x", 2.0, 1.0, 3.0)], "")
    monkeypatch.setattr(registry, "BENCHMARKS", {"step": lambda flags: measured})
    assert main(["bench", "step", "--out", str(tmp_path)]) == 0
    assert "| x | 2 [1, 3] |" in " ".join(capsys.readouterr().out.split())
    assert rows_of(tmp_path / "step.csv") == [{"a": "x", "b": "2", "b_low": "1", "b_high": "3"}]
