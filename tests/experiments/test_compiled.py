"""Costs read off compiled programs, and the command that compiles them."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from experiments.bench.compiled import measure, targets
from experiments.bench.compiled.command import specs_of
from experiments.bench.compiled.flags import Compiled
from experiments.bench.compiled.measure import Costs
from experiments.bench.compiled.program import Program
from experiments.bench.compiled.report import COLUMNS, est_ms, ratios, read_rows, row_of, write_row
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.step import step
from experiments.bench.compiled.targets import environment, find_target
from experiments.cli import main
from experiments.errors import UserError

PROGRAM = Program((Path(__file__).parent / "programs" / "tpu.txt").read_text())
ARRAY = 8 * 128 * 4  # bytes
NONE = Spec("v5e:2x2", method="none")
FOUND: Costs = dict.fromkeys(COLUMNS[7:11], 1) | {
    **{"hbm_bytes": 819, "flops": 197.0, "compile_s": 1.5, "all_reduces": 1, "parameters": 60},
    "jax": "0.10.2",
}


def test_bytes_of_hbm() -> None:
    """By hand: fast memory causes no traffic; a copy between the two memories counts once."""
    copied, sliced = ARRAY, ARRAY // 4
    fused = 2 * ARRAY  # the copy is in fast memory
    loop = 5 * (2 * 16 + 2 * 16)
    summed = 2 * ARRAY
    others = (ARRAY + 4 * 4) + (ARRAY + 8 * 4)
    assert PROGRAM.cost.hbm_bytes == copied + sliced + fused + loop + summed + others


def test_kernels() -> None:
    """A fusion, and another that runs five times; operations that join names are no kernels."""
    assert PROGRAM.cost.kernels == 1 + 5


def test_collectives() -> None:
    """An asynchronous collective counts its result, not the operands that its start repeats."""
    assert [each.name for each in PROGRAM.collectives] == [
        *("all-reduce.1", "all-reduce-done.1", "all-gather-done.1"),
    ]
    assert PROGRAM.collective_bytes == (ARRAY + 2 * 4) + 4 * 4 + 8 * 4


@pytest.mark.parametrize(
    ("name", "devices"), [("v5e:4x4", 16), ("v4:2x2x2", 8), ("h100:8", 8), ("a100:16", 16)]
)
def test_targets(name: str, devices: int) -> None:
    assert find_target(name).devices == devices


@pytest.mark.parametrize(
    ("name", "named"),
    [("v5:4x4", "v5e"), ("v5e:0x4", "v5e:4x4"), ("h100:2x2", "h100:8"), ("h100:12", "multiple")],
)
def test_a_wrong_target_is_told_a_right_one(name: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        find_target(name)


@pytest.mark.parametrize(
    ("target", "extra"), [("v5e:4x4", "compile-tpu"), ("h100:8", "compile-gpu")]
)
def test_without_the_compiler_the_extra_is_named(
    target: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "compiled", "--target", target, "--out", str(tmp_path)]) == 2
    assert extra in capsys.readouterr().err


def test_a_process_sees_no_device_and_the_users_flags() -> None:
    outer = {"XLA_FLAGS": "--mine", "JAX_PLATFORMS": "cuda"}
    inner = environment(find_target("h100:8"), outer)
    assert inner["JAX_PLATFORMS"] == "cpu"
    assert inner["CUDA_VISIBLE_DEVICES"] == "-1"
    assert inner["XLA_FLAGS"].startswith("--mine --xla_gpu")
    assert environment(find_target("v4:2x2x1"), outer)["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"


def test_the_roofline_is_the_slower_of_memory_and_arithmetic() -> None:
    """819 bytes at 819 GB/s take a nanosecond, as do 197,000 operations at 197 TFLOP/s."""
    assert est_ms(row_of(NONE, FOUND)) == pytest.approx(1e-6)
    assert est_ms(row_of(NONE, FOUND | {"flops": 2 * 197e3})) == pytest.approx(2e-6)


def test_rows_are_merged_and_read_again(tmp_path: Path) -> None:
    path, bn = tmp_path / "compiled.csv", replace(NONE, method="bn")
    for spec, size in ((NONE, 819), (replace(bn, target="h100:8"), 819), (bn, 1638), (NONE, 546)):
        write_row(path, row_of(spec, FOUND | {"hbm_bytes": size}))
    rows = read_rows(path)
    assert [row["target"] for row in rows] == ["v5e:2x2", "h100:8", "v5e:2x2"]
    assert [row["hbm_bytes"] for row in rows] == ["546", "819", "1638"]
    assert [row["hbm_ratio"] for row in rows] == ["1.0000", "", "3.0000"]
    assert ratios(rows[2], rows) == [3, 1]
    assert rows[2].items() >= row_of(bn, FOUND | {"hbm_bytes": 1638}).items()


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The baseline is compiled once; a failure stops no other compilation, and is reported last."""
    asked: list[str] = []

    def compile_apart(spec: Spec) -> Costs | str:
        asked.append(spec.method)
        return "out of luck" if spec.method == "gn" else FOUND

    monkeypatch.setattr(measure, "compile_apart", compile_apart)
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: True)
    command = ["bench", "compiled", "--out", str(tmp_path), "--model", "cnn9", "--methods"]
    assert main([*command, "gn,bn"]) == 2
    told = capsys.readouterr()
    assert "gn: out of luck" in told.err
    assert max(len(line) for line in told.out.splitlines() if "|" in line) <= 100
    assert main([*command, "bn,cwo"]) == 0
    assert main([*command, "bn", "--fresh"]) == 0
    assert asked == ["none", "gn", "bn", "cwo", "none", "bn"]
    assert [row["method"] for row in read_rows(tmp_path / "compiled.csv")] == ["none", "bn", "cwo"]
    assert "v5e:4x4, training step of cnn9" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(
    ("what", "name"), [("step", "none+privat"), ("update", "sdg"), ("effective", "lwc")]
)
def test_an_unknown_method_is_refused_before_anything_is_compiled(what: str, name: str) -> None:
    with pytest.raises(UserError, match=re.escape(repr(name))):
        specs_of(Compiled(what=what, methods=name))


def test_a_private_step_has_the_gradient_of_each_row() -> None:
    """Also if there is one device: the program is for that device, not for the default one."""
    spec = replace(NONE, model="mlp", dtype="float32", depth=1, width=5, rows_per_device=7)
    shapes, device = {}, jax.devices()[-1]
    for name in ("none", "none+private"):
        subject = step(replace(spec, method=name), [device])
        shapes[name] = str(jax.make_jaxpr(subject.function)(*subject.arguments))
        leaves = jax.tree.leaves(subject.arguments)
        assert {place for leaf in leaves for place in leaf.sharding.device_set} == {device}
    assert "f32[7,5,10]" in shapes["none+private"]
    assert "f32[7,5,10]" not in shapes["none"]


def test_the_program_of_an_update_depends_on_no_network() -> None:
    assert specs_of(Compiled(what="update", methods="sgd", channels=7, dtype="bfloat16")) == [
        Spec(what="update", model="conv3x3", dtype="float32", method="sgd")
    ]
