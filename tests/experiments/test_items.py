"""The page of items, and the reports, tables and data that it is made of."""

import csv
from pathlib import Path

import numpy as np
import pytest

from experiments.analysis.table import markdown
from experiments.data.clouds import load_meshes
from experiments.data.solids import PROFILES, solid, write_solids
from experiments.papers.data import data_note, find
from experiments.papers.items import ITEMS
from experiments.papers.page import PAGE, page_of, read_report, reports_in, state_of
from experiments.papers.settings import named, with_settings

RESULTS = Path(__file__).parents[2] / "experiments" / "results"

#: The items without a report; one that gets a report leaves this list.
OPEN: set[str] = set()

REPORT = """# {name}: a title

The paper: it is so

Preset {preset}: epochs 2.

|             | ours | reference | holds |
|-------------|-----:|----------:|------:|
| \\|error\\| | 0.10 |         0 |   yes |

Trained and tested on: {data}.

- command: `python -m experiments paper {name}`
- hardware: cpu (cpu), 2 CPU cores, Linux x86_64
- date: 2026-11-28
"""


@pytest.fixture(scope="module")
def reports():
    return reports_in(RESULTS)


def test_reports_have_their_rows_and_a_picture(reports):
    assert {name for name in ITEMS if name not in reports} == OPEN
    for report in (each for name in reports for each in reports[name]):
        folder = report.path.parent
        assert (folder / "results.csv").stat().st_size
        assert list(folder.glob("*.png"))
        assert report.findings


def test_the_committed_page_is_that_of_the_committed_reports(reports):
    page = RESULTS / PAGE
    assert page.read_text() == page_of(list(ITEMS.values()), reports, page.parent)
    count = len(ITEMS) - len(OPEN)
    assert f"{count} of {len(ITEMS)} items have a report" in page.read_text()


def rows_of(report):
    with (report.path.parent / "results.csv").open() as file:
        return list(csv.DictReader(file))


def test_numbers_in_reports_are_those_of_their_rows(reports):
    checked = 0
    for report in (each for name in reports for each in reports[name]):
        shown = {cells[0].replace("\\|", "|"): cells[1] for cells in report.findings}
        for row in rows_of(report):
            if "quantity" in row:
                number = float(shown[row["quantity"]].split(" ± ")[0])
                assert number == pytest.approx(float(row["ours"]), rel=1e-3, nan_ok=True)
                checked += 1
    assert checked > 50


def test_errors_and_accuracies_in_reports_are_means_of_their_rows(reports):
    checked = 0
    for item in ITEMS.values():
        if not item.grid or item.grid.measure != "test_accuracy":
            continue
        for report in reports.get(item.name, ()):
            accuracies = {}
            for row in rows_of(report):
                name = f"{row['row']}, {row['column']}" if row["column"] else row["row"]
                accuracies.setdefault(name, []).append(float(row["test_accuracy"]))
            for statement, ours, *_ in report.findings:
                name, _, measure = statement.partition(": test ")
                if name in accuracies and measure != "loss" and "diverged" not in ours:
                    mean = 100 * np.mean(accuracies[name])
                    expected = 100 - mean if measure.startswith("error") else mean
                    assert float(ours.split(" ± ")[0]) == pytest.approx(expected, abs=0.0051)
                    checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("name", "preset", "data", "state"),
    [
        ("cwo/tab6", "cpu", "photographs in the place of imagenet", "stand-in"),
        ("cwo/tab6", "full", "imagenet", "as the paper"),
        ("cwo/tab1", "cpu", "cifar10", "reduced"),
        ("cwo/tab1", "cpu", "cifar10-jpeg", "stand-in"),
    ],
)
def test_states(tmp_path, name, preset, data, state):
    path = tmp_path / "report.md"
    path.write_text(REPORT.format(name=name, preset=preset, data=data))
    found, report = read_report(path)
    assert (found, state_of(ITEMS[name], report)) == (name, state)
    assert report.findings == [["\\|error\\|", "0.10", "0", "yes"]]
    assert state_of(ITEMS[name], None) == "open"
    page = page_of([ITEMS[name]], {name: [report]}, tmp_path)
    assert "1 hold" in page
    assert "| \\|error\\| " in page
    assert "[report](report.md)" in page


def test_bars_do_not_end_the_cells_of_a_table():
    lines = markdown((("|x|", "y"), [("a | b", "1")])).splitlines()
    assert [line.replace("\\|", "").count("|") for line in lines] == [3, 3, 3]


@pytest.mark.parametrize("name", ["cwo/tab5", "cwo/tab2", "bn/fig4", "normprop/fig2"])
def test_training_rows_can_be_set_and_are_reported(name):
    preset = with_settings(ITEMS[name], ITEMS[name].cpu, ["train-rows=64"])
    assert named(preset.settings)["train_rows"] == 64


def test_data_of_another_name_stand_in_for_the_papers(tmp_path):
    for name in ("cifar10", "photographs"):
        np.savez(tmp_path / f"{name}.npz", X=np.zeros((4, 2)), y=np.arange(4))
    assert data_note(tmp_path, ["cifar10"]) == "Trained and tested on: cifar10.npz."
    (tmp_path / "train").mkdir()
    assert data_note(tmp_path, ["imagenet"]).endswith(f"{tmp_path.name} in the place of imagenet.")
    assert data_note(None, ["cifar10"]).endswith("32 x 32 in the place of cifar10.")


def test_solids_are_meshes_that_clouds_are_drawn_from(tmp_path):
    write_solids(tmp_path, train=2, test=1)
    assert find(tmp_path, "modelnet40") == str(tmp_path)
    data = load_meshes(tmp_path, 0)
    assert data.X_train.shape == (2 * len(PROFILES), 1024, 3)
    assert tuple(data.classes) == tuple(sorted(PROFILES))
    # The vertices of a stretched ball are on an ellipsoid: a' x^2 = 1 has an exact solution.
    vertices, _ = solid("ball", np.random.default_rng(3))
    axes, residual, *_ = np.linalg.lstsq(vertices**2, np.ones(len(vertices)))
    assert residual < 1e-20
    assert (axes > 0).all()
