"""What a command writes replaces nothing but what the same command wrote."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.analysis.picture import new_figure, picture
from experiments.cli import main
from experiments.errors import UserError
from experiments.papers import run as papers_run
from experiments.papers.collected import collect
from experiments.papers.items import ITEMS
from experiments.papers.page import PAGE, reports_in
from experiments.papers.run import UNFINISHED, check_replaceable, run_item
from experiments.papers.settings import with_settings
from experiments.runs.comparison import others_note
from experiments.runs.lock import alone_in
from experiments.runs.outputs import check_outputs, check_own
from experiments.runs.spec import OFFSET
from experiments.runs.store import FILE, Store
from tests.experiments.test_items import REPORT
from tests.experiments.test_papers import TOY
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


def write_pictures(folder: Path) -> None:
    for place in ("cats/1.png", "dogs/1.png"):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).touch()


@pytest.mark.parametrize("name", ["results.csv", "curves.csv", "tuning.csv"])
@pytest.mark.parametrize("command", ["compare", "train"])
def test_reports_replace_no_data(name, command, tmp_path, capsys):
    """The data are named by another path than the folder of the reports."""
    (tmp_path / name).write_text(text := "method,seed,epochs,label\n1,2,3,a\n")
    (tmp_path / "link").symlink_to(tmp_path)
    line = [command, "--dataset", str(tmp_path / "link" / name), "--out", str(tmp_path)]
    assert main(line) == 2
    assert f"its {name} is the data" in said(capsys)
    assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("a,b,label\n1,2,x\n", False),
        ("", False),
        ("seed,method,epochs\n", False),
        ("method,seed,epochs,outcome\n", True),
        ("\ufeffmethod;seed;epochs;outcome\r\n", True),
        ('"method","seed","epochs"\n', True),
    ],
)
def test_reports_replace_no_table_of_another_origin(text, replaced, tmp_path):
    (tmp_path / "results.csv").write_text(text)
    with contextlib.nullcontext() if replaced else pytest.raises(UserError, match=r"results\.csv"):
        check_outputs(tmp_path, "digits")


@pytest.mark.parametrize("name", ["table.md", "curves.png", "tuning.png", "rates.png"])
def test_a_comparison_replaces_no_page_and_no_picture_of_another_origin(name, tmp_path, capsys):
    (tmp_path / name).write_text("mine")
    assert main(["compare", "--dataset", "digits", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path / name} is of no comparison" in said(capsys)
    assert (tmp_path / name).read_text() == "mine"
    if name != "table.md":
        (tmp_path / name).write_bytes(picture(new_figure()))
        check_own(tmp_path)


@pytest.mark.parametrize("name", ["results.csv", "curves.csv"])
def test_a_report_replaces_no_table_of_another_origin(name, tmp_path):
    (tmp_path / name).write_text("name,price\n")
    with pytest.raises(UserError, match=rf"{name} is of no report"):
        run_item(TOY, "smoke", None, tmp_path, "a test")
    assert (tmp_path / name).read_text() == "name,price\n"


@pytest.mark.parametrize("flag", ["--out", "--tensorboard", "--checkpoint-dir"])
@pytest.mark.parametrize("place", [".", "cats", "new/folder"])
def test_nothing_is_written_among_pictures(flag, place, tmp_path, capsys):
    write_pictures(data := tmp_path / "pictures")
    before = sorted(data.rglob("*"))
    line = ["train", "--dataset", str(data), "--out", str(tmp_path / "out")]
    assert main([*line, flag, str(data / place)]) == 2
    assert f"{flag} is {data / place}, in the folder of the data" in said(capsys)
    assert sorted(data.rglob("*")) == before


def test_reports_beside_the_data_are_written(tmp_path):
    write_pictures(tmp_path / "pictures")
    check_outputs(tmp_path / "out", str(tmp_path / "pictures"))
    check_outputs(tmp_path, str(tmp_path / "pictures"), {"--checkpoint-dir": "gs://x"})
    (tmp_path / "X.npy").touch()
    check_outputs(tmp_path / "out", str(tmp_path))


#: What is in a folder, what would replace it, and if it may.
REPORTS = {
    "the same again": ("cpu", "", "cpu", [], True),
    "a preset of seconds over one of hours": ("full", "", "smoke", [], False),
    "other settings over the preset's": ("cpu", "", "cpu", ["points=5"], False),
    "the preset's settings over others": ("cpu", "; set: points=5", "cpu", [], False),
    "the same settings again": ("cpu", "; set: points=5", "cpu", ["points=5"], True),
    "a preset of hours over one of seconds": ("smoke", "", "full", [], True),
    "a preset over one of seconds with other settings": (
        "smoke",
        "; set: points=9",
        "cpu",
        [],
        False,
    ),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_replaces_none_that_took_its_own_time(kind, tmp_path):
    preset, changed, other, pairs, replaced = REPORTS[kind]
    text = REPORT.format(name=TOY.name, preset=preset, data="cifar10")
    (tmp_path / "report.md").write_text(text.replace("epochs 2.", f"reduced{changed}."))
    with contextlib.nullcontext() if replaced else pytest.raises(UserError, match=other):
        check_replaceable(tmp_path, TOY, other, pairs)


def test_what_run_item_writes_is_recognized(tmp_path):
    run_item(TOY, "cpu", None, tmp_path, "a test", pairs=["points=5"])
    check_replaceable(tmp_path, TOY, "cpu", ["points=5"])
    for preset, pairs in {"cpu": [], "smoke": ["points=5"]}.items():
        with pytest.raises(UserError, match=r"toy/squares, preset cpu with points=5, which"):
            run_item(TOY, preset, None, tmp_path, "a test", pairs=pairs)
    with pytest.raises(UserError, match="report of toy/squares"):
        run_item(replace(TOY, name="toy/cubes"), "cpu", None, tmp_path, "a test")
    assert "- points: 5" in (tmp_path / "report.md").read_text()


def test_a_report_says_so_until_the_files_beside_it_are_written(tmp_path, monkeypatch):
    def stop(*arguments):
        with pytest.raises(UserError, match="another run writes to"), alone_in(tmp_path):
            pass
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(papers_run, "write_csv", stop)
        with pytest.raises(KeyboardInterrupt):
            run_item(TOY, "cpu", None, tmp_path, "a test")
    assert UNFINISHED in (tmp_path / "report.md").read_text()
    run_item(TOY, "cpu", None, tmp_path, "a test")
    assert UNFINISHED not in (tmp_path / "report.md").read_text()


def test_so_does_one_whose_command_begins_again(tmp_path):
    def stop(*arguments):
        raise KeyboardInterrupt

    run_item(TOY, "cpu", None, tmp_path, "a test")
    before = (tmp_path / "report.md").read_text()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_item(replace(TOY, run=stop), "cpu", None, tmp_path, "a test")
        heading, *lines = (tmp_path / "report.md").read_text().splitlines()
        assert (heading, lines[1]) == (before.splitlines()[0], UNFINISHED)
        assert lines.count(UNFINISHED) == 1
    run_item(TOY, "cpu", None, tmp_path, "a test")
    assert UNFINISHED not in (tmp_path / "report.md").read_text()


def test_no_item_runs_if_one_of_all_would_replace_a_report(tmp_path, capsys):
    write_report(tmp_path / "cwo" / "tab1")
    assert main(["paper", "all", "--preset", "smoke", "--out", str(tmp_path)]) == 2
    assert "report of cwo/tab1, preset cpu" in said(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["cwo"]


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["points"], "--set points is no setting"),
        (["points="], "--set points= is no setting"),
        (["=3"], "--set =3 is no setting"),
        (["pionts=3"], "did you mean 'points'"),
        (["points=3.5"], "--set points=3.5 cannot be read; wanted a value such as the preset's, 3"),
        (["points=--help"], "--set points=--help cannot be read"),
        (["points=3;4"], "--set points=3;4 cannot be read"),
        (["points=3", "points=4"], "--set has points twice"),
    ],
)
def test_a_setting_that_is_none_is_one_line(pairs, words, capsys):
    with pytest.raises(UserError, match=re.escape(words)) as raised:
        with_settings(TOY, TOY.cpu, pairs)
    assert "\n" not in str(raised.value)
    assert capsys.readouterr() == ("", "")


def test_runs_whose_tables_were_replaced_are_said(tmp_path):
    store = Store(tmp_path)
    for each in (spec(), spec(1), spec(OFFSET)):
        store.add(each, run(seed=each.seed))
    assert others_note(store, [run(), run(seed=1)]) == []
    store.add(spec(epochs=2), run())
    (line,) = others_note(store, [run(), run(seed=1)])
    assert line.startswith("1 more runs in ")
    assert f"python -m experiments runs {tmp_path} lists them" in line
    assert "network before or after an edit" in line
