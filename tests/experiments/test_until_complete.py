"""Reports of a folder hold the runs that another program stores while they are written."""

import pytest

from experiments import compare, train
from experiments.cli import main
from experiments.runs.store import Store
from tests.experiments.test_runs import run, spec
from tests.experiments.toy import rows_of, save_toy

TINY = ["--model", "mlp", "--depth", "1", "--width", "4", "--epochs", "1", "--batch-size", "16"]


def test_a_report_is_repeated_until_no_other_program_stores_runs(tmp_path):
    store, held = Store(tmp_path), []

    def report():
        held.append(len(store.rows()))
        if len(held) < 3:
            Store(tmp_path).add(spec(len(held)), run(len(held)))
        return held[-1]

    store.add(spec(0), run(0))
    assert store.until_complete(report) == 3
    assert held == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "module", "reads"),
    [
        # The first read is after the run.
        (["compare", "--seeds", "1", "--methods", "none"], compare, 2),
        (["train", "--method", "none", "--channels", "8"], train, 1),
    ],
)
def test_what_another_program_stores_meanwhile_is_shown(
    command, module, reads, tmp_path, monkeypatch, capsys
):
    out, with_others, read = tmp_path / "out", module.with_others, []
    flags = ["--dataset", save_toy(tmp_path), *TINY, "--out", str(out)]

    def while_another_ends(*arguments):
        shown = with_others(*arguments)
        read.append([run.method for run in shown])
        if len(read) == reads:
            with monkeypatch.context() as patch:
                patch.setattr(module, "with_others", with_others)
                assert main(["compare", "--methods", "ln", "--seeds", "1", *flags, "--quiet"]) == 0
        return shown

    monkeypatch.setattr(module, "with_others", while_another_ends)
    assert main([*command, *flags]) == 0
    printed = capsys.readouterr().out
    assert printed.count("test, %") == 1  # One table, though the files were written twice.
    assert "of other settings" not in printed
    assert read[reads - 1 :] == [["none"], ["none", "ln"]]
    for name in ("results.csv", "curves.csv"):
        assert {row["method"] for row in rows_of(out / name)} == {"none", "ln"}
    table = (out / "table.md").read_text()
    assert module is train or all(f"| {name} " in table for name in ("none", "ln"))
