"""Verdicts on the committed pages are those of the rows beside them, by the rule of today."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

from experiments.analysis.comparison import LEVEL, conclusion
from experiments.analysis.statistics import interval, mean_and_interval, place
from experiments.training.label_maps import MEAN_IOU
from experiments.training.run import Epoch, Run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
#: The conclusion of a comparison: its head, and an item per word.
BLOCK = re.compile(r"^Against .+?:\n+(- .+?)(?=\n(?!- |  )|\Z)", re.MULTILINE | re.DOTALL)
TABLES = [page for page in sorted(RESULTS.rglob("table.md")) if BLOCK.search(page.read_text())]

Item = tuple[str, str, str]
Differences = Float[np.ndarray, " seeds"]


def runs_of(folder: Path) -> list[Run]:
    """Returns the runs of a folder's results.csv, by their last epochs."""
    with (folder / "results.csv").open() as file:
        return [run_of(row) for row in csv.DictReader(file)]


def run_of(row: dict[str, str]) -> Run:
    names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
    last = Epoch(int(row["epochs"]), *(float(row[name]) for name in names))
    scores = {MEAN_IOU: float(row[MEAN_IOU])} if row.get(MEAN_IOU) else {}
    return Run(row["method"], int(row["seed"]), [last], 1.0, 1, None, row["outcome"], (), scores)


def items(block: str) -> set[Item]:
    """Returns the words, the method's code and the figures of each entry of a conclusion."""
    found = set()
    for line in re.sub(r"\n +", " ", block).splitlines():
        words, _, entries = line.removeprefix("- ").partition(": ")
        for entry in entries.split("; "):
            name, sign, figures = re.fullmatch(r"(.+?)(?: ([+-])(\d.*))?", entry).groups("")
            found.add((words, re.sub(r".*\((.+)\)$", r"\1", name), sign + figures))
    return found


def concluded(folder: Path) -> str:
    return "\n".join(conclusion(runs_of(folder)))


@pytest.mark.parametrize("page", TABLES, ids=lambda page: str(page.parent.relative_to(RESULTS)))
def test_the_conclusion_of_a_table_is_that_of_its_rows(page: Path) -> None:
    block = BLOCK.search(page.read_text())
    expected = BLOCK.search(concluded(page.parent))
    assert block
    assert expected
    assert items(block[1]) == items(expected[1])


def test_the_quoted_conclusion_is_that_of_the_folder_that_its_page_names() -> None:
    block = BLOCK.search((ROOT / "docs" / "evidence" / "digits.md").read_text())
    assert block
    assert block[0].strip("`\n") == concluded(RESULTS / "default").replace(":\n\n", ":\n")


def differences_by_machine() -> dict[str, dict[str, Differences]]:
    """Returns points less batch normalization by machine and method, one per seed."""
    accuracies: dict[str, dict[str, dict[int, float]]] = {}
    with (RESULTS / "first" / "machines.csv").open() as file:
        for row in csv.DictReader(file):
            methods = accuracies.setdefault(row["machine"], {})
            seeds = methods.setdefault(row["method"], {})
            seeds[int(row["seed"])] = 100 * float(row["test_accuracy"])
    return {
        machine: {
            method: np.array([values[seed] - methods["bn"][seed] for seed in sorted(values)])
            for method, values in methods.items()
        }
        for machine, methods in accuracies.items()
    }


def test_the_words_on_other_machines_are_those_of_their_runs() -> None:
    """Each cell is mean, interval and word; no two words of a method exclude each other."""
    found = differences_by_machine()
    methods = ("lcw", "cwo-centre-sphere", "none")
    mean = {name: np.mean([each[name] for each in found.values()], 0) for name in methods}
    text = (RESULTS / "first" / "README.md").read_text()
    table = [
        line.strip("| ").split(" | ")
        for line in text.splitlines()
        if ", level" in line or ", behind |" in line
    ]
    assert [row[0] for row in table] == [*found, "mean of the six, by seed"]
    for (_, *shown), values in zip(table, [*found.values(), mean], strict=True):
        for cell, method in zip(shown, methods, strict=True):
            word = place(*interval(values[method]), LEVEL)
            assert cell == f"{mean_and_interval(values[method], '+.1f')}, {word}"
    cells = [(each[name], mean[name].mean()) for each in found.values() for name in methods]
    held = [low < centre < high for values, centre in cells for low, high in [interval(values)]]
    assert f"{sum(held)} of the {len(held)} intervals contain the mean of the six" in text
    for method in methods:
        words = [
            set(place(*interval(each[method]), LEVEL).split(" or ")) for each in found.values()
        ]
        assert set.intersection(*words)
    for method in methods:
        over_machines = np.std([each[method] for each in found.values()], 0, ddof=1)
        over_seeds = np.mean([each[method].std(ddof=1) for each in found.values()])
        assert f"{np.sqrt(np.mean(over_machines**2)):.2f}" in text
        assert f"{over_seeds:.2f}" in text
