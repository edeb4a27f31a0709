"""The benchmarks run and write what they print, at sizes that take no time."""

import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.bench import effective, lcw, peers, registry, start, throughput, update
from experiments.bench.table import Measured
from experiments.cli import main

#: Each test here takes many seconds.
pytestmark = pytest.mark.slow

FLOAT = 4  # bytes


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_lcw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lcw, "FAN_INS", (8,))
    monkeypatch.setattr(lcw, "UNITS", 4)
    assert main(["bench", "lcw", "--repeats", "2", "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "lcw.csv")
    assert [(row["fan_in"], row["pass"]) for row in rows] == [("8", "forward"), ("8", "gradient")]
    assert all(float(row["speedup"]) > 0 for row in rows)


def test_the_dense_basis_is_orthonormal_and_sums_to_zero() -> None:
    basis = np.asarray(lcw.dense_basis(7), np.float64)
    assert basis.shape == (7, 6)
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-6)
    np.testing.assert_allclose(basis.sum(0), 0, atol=1e-6)


def test_effective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effective, "NETWORKS", {"tiny": lambda: [(3, 3, 2, 4), (4, 5)]})
    assert main(["bench", "effective", "--repeats", "2", "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "effective.csv")
    assert [row["method"] for row in rows] == ["read and write", *effective.NODES]


@pytest.mark.parametrize(
    ("kernels", "millions"),
    [(effective.wide_resnet_kernels, 36.5), (effective.resnet50_kernels, 25.5)],
)
def test_the_networks_have_their_published_sizes(kernels, millions: float) -> None:
    weights = sum(int(np.prod(shape)) for shape in kernels())
    assert round(weights / 1e6, 1) == millions


@pytest.mark.usefixtures("standard_promotion")
def test_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (_, optimizers) in update.NETWORKS.items():
        monkeypatch.setitem(update.NETWORKS, name, (lambda: [(4, 6), (6, 3)], optimizers))
    assert main(["bench", "update", "--repeats", "2", "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "update.csv")
    named = {row["optimizer"] for row in rows if row["network"] == "WRN-28-10"}
    assert named == {*update.ALL}
    assert all(float(row["ratio"]) > 0 for row in rows)


def test_a_decoder_has_its_published_size() -> None:
    """GPT-2 medium's 355M less what it looks up: 50,257 tokens and 1,024 positions."""
    weights = sum(int(np.prod(shape)) for shape in update.decoder_kernels())
    assert round(weights / 1e6) == 302


def test_inference(tmp_path: Path) -> None:
    sizes = ["--model", "mlp", "--depth", "1", "--width", "4", "--batch-size", "8"]
    command = ["bench", "inference", *sizes, "--methods", "bn,wn", "--repeats", "2"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    rows = {row["network"]: float(row["gflops"]) for row in rows_of(tmp_path / "inference.csv")}
    # At hand or folded, what is left is the plain network.
    assert rows["wn, weights at hand"] == rows["none"] < rows["wn"]
    assert rows["none"] == pytest.approx(rows["bn, folded"], rel=0.01)
    assert rows["bn, folded"] < rows["bn"]


@pytest.mark.parametrize("model", ["mlp", "transformer"])
def test_step(tmp_path: Path, model: str) -> None:
    sizes = ["--model", model, "--depth", "1", "--width", "8", "--batch-size", "4"]
    command = ["bench", "step", *sizes, "--methods", "rms", "--repeats", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    rows = {row["method"]: float(row["gflops"]) for row in rows_of(tmp_path / "step.csv")}
    assert rows["none"] == rows["none (control)"] < rows["rms"]


def test_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "IMPORTS", ("json", "json, csv"))
    sizes = ["--model", "mlp", "--depth", "1", "--width", "4", "--batch-size", "8"]
    command = ["bench", "start", *sizes, "--methods", "bn", "--repeats", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    names = [row["what"] for row in rows_of(tmp_path / "start.csv")]
    steps = ["compile none", "compile none (control)", "compile bn"]
    assert names == ["import json", "import json, csv", *steps]


def test_all_of_them_but_those_that_need_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def named(name: str) -> Callable[[object], Measured]:
        def benchmark(flags: object) -> Measured:
            """Says nothing."""
            ran.append(name)
            return Measured(("a", "b", "b_low", "b_high"), [("x", 2.0, 1.0, 3.0)], "")

        return benchmark

    monkeypatch.setattr(registry, "BENCHMARKS", {name: named(name) for name in registry.BENCHMARKS})
    assert main(["bench", "all", "--out", str(tmp_path)]) == 0
    assert {*registry.BENCHMARKS} - {*ran} == {"input"}
    assert "input: Says nothing.\n\nLeft out: it needs --data-dir" in (
        said := capsys.readouterr().out
    )
    assert "| x | 2 [1, 3] |" in " ".join(said.split())
    assert rows_of(tmp_path / "lcw.csv") == [{"a": "x", "b": "2", "b_low": "1", "b_high": "3"}]


def test_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("FAN_IN", 8), ("UNITS", 4), ("ROWS", 2)):
        monkeypatch.setattr(peers, name, size)
    assert main(["bench", "peers", "--repeats", "2", "--out", str(tmp_path)]) == 0
    layers = [row["layer"] for row in rows_of(tmp_path / "peers.csv")]
    assert {"plain dense", "jaxnorm WeightNormalized", "linen.WeightNorm"} <= set(layers)


def test_throughput(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "EPOCHS", 2)
    sizes = ["--model", "mlp", "--depth", "1", "--width", "4", "--batch-size", "600"]
    command = ["bench", "throughput", *sizes, "--methods", "none", "--repeats", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "throughput_mlp.csv")
    assert {row["way"]: row["base"] for row in rows} == throughput.BASES
    assert all(float(row["steps_per_s"]) > 0 for row in rows)


def test_bytes_a_device_do_not_depend_on_the_devices(tmp_path: Path) -> None:
    """By each entry, with so many rows a device; test_step_collectives says what they are."""
    width, counts = 2, (2, 4, 8)
    sizes = ["--model", "mlp", "--depth", "1", "--width", str(width), "--batch-size", "16"]
    command = ["bench", "scaling", *sizes, "--methods", "none,bn,cwo,vcl"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    found = defaultdict(dict)
    for row in rows_of(tmp_path / "scaling.csv"):
        found[row["method"], row["parallel"]][int(row["devices"])] = int(row["bytes_per_device"])
    assert len(found) == 8
    for way, sent in found.items():
        assert sent[2] == sent[4] == sent[8] > 0, way
    parameters = 32 * 32 * 3 * width + width + width * 10 + 10
    assert found["none", "jit"] == {1: 0, **dict.fromkeys(counts, FLOAT * (parameters + 2))}


def test_scaling_wants_devices(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    assert main(["bench", "scaling"]) == 2
    assert "JAX_NUM_CPU_DEVICES=8" in capsys.readouterr().err
