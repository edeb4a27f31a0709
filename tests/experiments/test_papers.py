"""Items of the papers: the files and output of a run, and the fields of every item."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.analysis.picture import new_figure
from experiments.config import UserError
from experiments.papers.collected import collect
from experiments.papers.item import Finding, Item, Preset, Report
from experiments.papers.items import ITEMS
from experiments.papers.run import run_item
from experiments.papers.settings import named, with_settings


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


TOY = Item(
    "toy/squares",
    "squares",
    "they grow",
    run,
    {"smoke": Preset(Settings(), "no time", "reduced")},
    ("They are squares.",),
)


def test_a_run_writes_a_report_a_table_and_a_picture(tmp_path, capsys):
    run_item(TOY, "smoke", None, tmp_path, "python -m experiments paper toy/squares")
    with (tmp_path / "results.csv").open() as file:
        assert list(csv.reader(file)) == [["x", "y"], ["0", "0"], ["1", "1"], ["2", "4"]]
    assert (tmp_path / "squares.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "report.md").read_text()
    for part in ("they grow", "reduced", "yes |", "They are squares.\n\nSquares", "- points: 3"):
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
    with pytest.raises(UserError, match="batch_size"):
        with_settings(fig1, fig1.presets["cpu"], ["batch_size=8"])
    with pytest.raises(UserError, match="epochs is 0"):
        with_settings(fig1, fig1.presets["cpu"], ["epochs=0"])
    with pytest.raises(UserError, match="no cell"):
        with_settings(fig1, fig1.presets["cpu"], ["only_rows=BN"])
    two = with_settings(fig1, fig1.presets["cpu"], ["only_rows=batch, batch 50;batch, batch 100"])
    assert len(fig1.grid.chosen(two.settings)) == 2


def test_every_item_has_a_smoke_preset_and_a_name_of_two_parts():
    for name, item in ITEMS.items():
        paper, _, what = name.partition("/")
        assert paper in {"vcl", "lcw", "cwo", "normprop", "bn"}
        assert what
        assert "smoke" in item.presets
        for preset in item.presets.values():
            assert named(preset.settings)
            assert preset.cost


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


def test_every_item_is_in_the_table_of_what_differs():
    text = (Path(__file__).parents[2] / "experiments" / "papers" / "README.md").read_text()
    pairs = (cell.split("/") for cell in re.findall(r"^\| (\w+/[\w, ]+) \|", text, re.MULTILINE))
    named = {f"{paper}/{what}" for paper, several in pairs for what in several.split(", ")}
    assert named == set(ITEMS)
