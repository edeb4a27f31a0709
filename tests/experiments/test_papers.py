"""Items of the papers: the files of a run, comparisons of numbers, and the quickest items."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.analysis.picture import new_figure
from experiments.errors import UserError
from experiments.papers.collected import collect
from experiments.papers.item import Finding, Item, Preset, Report
from experiments.papers.items import ITEMS
from experiments.papers.measured import at_least, at_most, compared, measured_report, near
from experiments.papers.run import KEPT, run_item
from experiments.papers.settings import with_settings
from experiments.runs.store import FILE
from tests.experiments.toy import rows_of


class Settings(NamedTuple):
    points: int = 3


def run(settings, context):
    figure = new_figure()
    figure.axes[0].plot(range(settings.points), label="line")
    figure.axes[0].set_ylabel("y")
    context.advance(1.0, "drawn")
    findings = [Finding("points", str(settings.points), "3", settings.points == 3)]
    rows = [(index, index**2) for index in range(settings.points)]
    return Report(findings, ("x", "y"), rows, {"squares": figure}, ["Squares grow."])


PRESET = Preset(Settings(), "no time", "reduced")
TOY = Item("toy/squares", "squares", "they grow", run, PRESET, PRESET, PRESET)


def test_a_run_writes_a_report_a_table_and_a_picture(tmp_path, capsys):
    run_item(TOY, "smoke", None, tmp_path, "python -m experiments paper toy/squares")
    assert (tmp_path / "results.csv").read_text().split() == ["x,y", "0,0", "1,1", "2,4"]
    assert (tmp_path / "squares.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "report.md").read_text()
    for part in ("they grow", "reduced", "yes |", "Squares grow.", "- points: 3"):
        assert part in text
    assert "points" in capsys.readouterr().out


def test_settings_of_the_user_replace_the_presets_and_are_recorded(tmp_path, capsys):
    run_item(TOY, "smoke", None, tmp_path, "a test", pairs=["points=5"])
    text = (tmp_path / "report.md").read_text()
    assert "reduced; set: points=5." in text
    assert "- points: 5\n" in text
    # Every named line of the pictures, point by point.
    assert (tmp_path / "curves.csv").read_text().splitlines()[1:3] == [
        *("squares,1,y,line,0.0,0.0", "squares,1,y,line,1.0,1.0"),
    ]
    fig1 = ITEMS["normprop/fig1"]
    cpu = fig1.cpu
    for pair in ("batch_size=8", "epochs=0", "only_rows=BN", "dataset=other.npz"):
        with pytest.raises(UserError, match=pair.partition("=")[0].removeprefix("only_")[:3]):
            with_settings(fig1, cpu, [pair])
    two = with_settings(fig1, cpu, ["only_rows=batch, batch 50;batch, batch 100", "noise=0.2"])
    assert len(fig1.grid.chosen(two.settings)) == 2
    assert two.settings.noise == 0.2


def test_a_report_says_that_its_folder_had_runs_before_the_call(tmp_path, capsys):
    text = lambda: run_item(TOY, "smoke", None, tmp_path, "") and capsys.readouterr().out  # noqa: E731
    assert KEPT not in text()
    (tmp_path / FILE).touch()
    assert KEPT in text()
    assert KEPT in (tmp_path / "report.md").read_text()


def test_reports_are_gathered_with_their_pictures(tmp_path, capsys):
    other = replace(TOY, name="toy/missing")
    run_item(TOY, "smoke", None, tmp_path / TOY.name, "a command")
    assert collect([TOY, other], tmp_path, tmp_path / "report.md") == 1
    page = (tmp_path / "report.md").read_text()
    assert "# toy/squares: squares" in page
    assert "![squares](toy/squares/squares.png)" in page
    assert "# Not run\n\n- toy/missing: squares" in page
    with pytest.raises(UserError, match="holds no report"):
        collect([other], tmp_path, tmp_path / "report.md")


def test_every_item_is_in_the_table_of_what_differs_and_notes_are_of_items():
    papers = Path(__file__).parents[2] / "experiments" / "papers"
    text, headings = ((papers / name).read_text() for name in ("README.md", "notes.md"))
    noted = ", ".join(re.findall(r"^## (.*)", headings, re.MULTILINE)).split(", ")
    assert noted == [*dict.fromkeys(noted)]
    assert set(noted) == {name for name, item in ITEMS.items() if item.notes}
    pairs = (cell.split("/") for cell in re.findall(r"^\| (\w+/[\w, ]+) \|", text, re.MULTILINE))
    named = {f"{paper}/{what}" for paper, several in pairs for what in several.split(", ")}
    assert named == set(ITEMS)


def test_numbers_are_compared_and_what_diverged_confirms_nothing():
    findings = [near("a", 1.02, 1.0, 0.01), at_most("b", 2.0, 3.0), at_least("c", 2.0, 3.0)]
    assert [finding.holds for finding in findings] == [False, True, False]
    report = measured_report(findings, {})
    assert report.rows[0] == ("a", "1.02", "1", "0.02", False)
    assert report.findings[1] == Finding("b", "2", "3 (at most)", True, "", (2.0, 3.0))
    assert len(report.columns) == len(report.rows[0])
    for bad in (float("nan"), float("inf")):
        for finding in (at_least("loss", bad, 1.0), compared("loss", bad, 1.0, True)):
            assert (finding.holds, finding.reason) == (None, "not trained")
            assert measured_report([finding], {}).rows[0][-1] == ""
    assert at_least("loss", 2.0, 1.0).holds


@pytest.mark.kept("bound")
@pytest.mark.parametrize(
    "name",
    [
        *("lcw/fig1", "normprop/bound"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("lcw/fig3", "cwo/signal")),
    ],
)
def test_small_presets_confirm_the_paper(name, tmp_path):
    report = run_item(ITEMS[name], "smoke", None, tmp_path, "a test")
    assert all(finding.holds is not False for finding in report.findings)
    assert len(report.findings) == len(report.rows)
    for row in rows_of(tmp_path / "results.csv"):
        difference = float(row["ours"]) - float(row["reference"])
        assert float(row["difference"]) == pytest.approx(difference, rel=1e-3, abs=1e-5)
    assert list(tmp_path.glob("*.png"))
    assert all(note in (tmp_path / "report.md").read_text() for note in ITEMS[name].notes)
