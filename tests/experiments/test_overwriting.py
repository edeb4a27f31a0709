"""What a command writes replaces nothing but what the same command wrote."""

from pathlib import Path

import pytest

from experiments.cli import main
from experiments.papers.collected import collect
from experiments.papers.items import ITEMS
from experiments.papers.page import PAGE, reports_in
from experiments.runs.store import FILE, Store
from tests.experiments.test_items import REPORT
from tests.experiments.test_runs import run, spec


def said(capsys) -> str:
    """Returns the one line of an error."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("name", [FILE, "results.csv", "notes.txt", "empty.csv"])
def test_a_table_of_runs_replaces_no_other_file(name, tmp_path, capsys):
    store = Store(tmp_path)
    store.add(spec(), run())
    (tmp_path / "results.csv").write_text("method,seed,epochs,outcome\nbn,0,1,\n")
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "empty.csv").touch()
    before = (tmp_path / name).read_bytes()
    assert main(["runs", str(tmp_path), "--csv", str(tmp_path / name)]) == 2
    assert f"--csv is {tmp_path / name}" in said(capsys)
    assert (tmp_path / name).read_bytes() == before
    assert len(store.rows()) == 1


def test_a_table_of_runs_replaces_an_earlier_one(tmp_path):
    Store(tmp_path).add(spec(), run())
    table = tmp_path / "runs.csv"
    for seed in (1, 2):
        assert main(["runs", str(tmp_path), "--csv", str(table)]) == 0
        assert len(table.read_text().splitlines()) == 1 + seed
        Store(tmp_path).add(spec(seed), run(seed=seed))


def write_report(folder: Path, name: str = "cwo/tab1") -> None:
    folder.mkdir(parents=True)
    text = REPORT.format(name=name, preset="cpu", data="cifar10")
    (folder / "report.md").write_text(text)


@pytest.mark.parametrize("folder", ["absent", "empty", "gathered"])
def test_no_page_is_written_of_a_folder_without_reports(folder, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    write_report(tmp_path / "gathered" / "nobody" / "tab1", "nobody/tab1")
    before = sorted(tmp_path.rglob("*"))
    for flags in ([], ["--items"]):
        assert main(["report", "--folder", str(tmp_path / folder), *flags]) == 2
        assert f"{tmp_path / folder}" in (line := said(capsys))
        assert "PAPER/ITEM/report.md" in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_gathered_and_listed_one_after_the_other(tmp_path):
    write_report(tmp_path / "cwo" / "tab1")
    for _ in range(2):
        assert main(["report", "--folder", str(tmp_path)]) == 0
        assert main(["report", "--folder", str(tmp_path), "--items"]) == 0
    assert {name: len(each) for name, each in reports_in(tmp_path).items()} == {"cwo/tab1": 1}
    assert "1 of " in (tmp_path / PAGE).read_text()


def test_a_page_replaces_no_report(tmp_path, capsys):
    write_report(tmp_path / "cwo" / "tab1")
    (tmp_path / "report.md").write_text(text := "# vcl/fig1: a title\n")
    assert main(["report", "--folder", str(tmp_path)]) == 2
    assert str(tmp_path / "report.md") in said(capsys)
    assert (tmp_path / "report.md").read_text() == text
    (tmp_path / "report.md").unlink()
    assert collect(list(ITEMS.values()), tmp_path, tmp_path / "report.md") == 1


def test_two_pages_at_once_are_refused(tmp_path, capsys):
    write_report(tmp_path / "cwo" / "tab1")
    assert main(["report", "--folder", str(tmp_path), "--items", "--verdicts"]) == 2
    assert "--verdicts and --items" in said(capsys)
