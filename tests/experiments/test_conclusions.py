"""Verdicts on the committed pages are those of the rows beside them, by the rule of today."""

import csv
import re
from pathlib import Path

import pytest

from experiments.analysis.comparison import conclusion
from experiments.training.label_maps import MEAN_IOU
from experiments.training.run import Epoch, Run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
#: The conclusion of a comparison: its head, and an item per word.
BLOCK = re.compile(r"^Against .+?:\n+(- .+?)(?=\n(?!- |  )|\Z)", re.MULTILINE | re.DOTALL)
TABLES = [page for page in sorted(RESULTS.rglob("table.md")) if BLOCK.search(page.read_text())]

Item = tuple[str, str, str]


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
    block = BLOCK.search((ROOT / "README.md").read_text())
    assert block
    assert block[0].strip("`\n") == concluded(RESULTS / "first").replace(":\n\n", ":\n")
