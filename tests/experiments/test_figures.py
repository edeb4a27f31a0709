"""Figures on the pages are those of the committed results, to the digits that are printed."""

import csv
import itertools
import json
import math
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.normprop import standardized
from jaxnorm.shaping import shaped
from jaxnorm.theory import c_slope

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "experiments" / "results"
EVIDENCE = sorted((DOCS / "evidence").glob("*.md"))
SUMMARIES = [ROOT / "README.md", DOCS / "evidence.md"]
#: The row of each figure of a summary.
QUOTED = Path(__file__).parent / "quoted.csv"
#: The row of each figure of a benchmark.
BENCHMARKED = Path(__file__).parent / "benchmarked.csv"
#: The folders of the results of `examples/`.
EXAMPLES = {"networks", "resnet18", "segmentation"}
QUANTITIES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "step_ms")
NUMBER = r"(\d+(?:\.\d+)?)"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


class Statistic(NamedTuple):
    """Mean, deviation and rounding error of a method's quantity over seeds."""

    method: str
    quantity: str
    mean: float
    deviation: float
    rounded: float = 0.0


@cache
def over_seeds() -> dict[str, list[Statistic]]:
    """Returns the statistics of each method's quantities, by folder."""
    statistics: dict[str, list[Statistic]] = defaultdict(list)
    for path in RESULTS.glob("*/**/results.csv"):
        groups, known = defaultdict(list), statistics[str(path.parent.relative_to(RESULTS))]
        for row in rows(path):
            if {"method", "seed"} <= row.keys():
                groups[row.get("row"), row.get("column"), row["method"]].append(row)
        for (*_, method), name in itertools.product(groups, QUANTITIES):
            group = groups[*_, method]
            if name not in group[0] or len(group) == 1:  # One seed has no deviation.
                continue
            values = np.array([float(row[name]) for row in group])
            rounded = 0.005 if name == "step_ms" else 0.0
            if "accuracy" in name:
                values = 100 * values
                error = 100 - values.mean(), values.std(ddof=1), rounded
                known.append(Statistic(method, name.replace("accuracy", "error"), *error))
            known.append(Statistic(method, name, values.mean(), values.std(ddof=1), rounded))
    return statistics


def linked(text: str) -> list[Statistic]:
    """Returns the statistics of the sets of results that a text names: folders in results/."""
    names = set(re.findall(r"results/([\w.-]+)", text))
    known = [
        each
        for folder, statistics in over_seeds().items()
        if folder.partition("/")[0] in names
        for each in statistics
    ]
    return known + (of_examples() if names & EXAMPLES else [])


@cache
def accuracies() -> dict[tuple[str, ...], list[float]]:
    """Returns accuracies in percent over seeds, or mIoU, by folder and row of its csv files."""
    found: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for folder in ("resnet18", "resnet18/h100"):  # the last update of each seed counts
        for row in rows(RESULTS / folder / "curves.csv"):
            found[folder, row["network"], row["rate"]][row["seed"]] = float(row["accuracy"])
    for folder in ("networks", "networks/longer", "networks/photographs", "networks/adam"):
        for row in rows(RESULTS / folder / "runs.csv"):
            group = folder, row["network"], row["method"], row["rate"]
            found[group][row["seed"]] = float(row["test"])
    for row in rows(RESULTS / "segmentation" / "runs.csv"):
        found["segmentation", row["norm"], row["rate"]][row["seed"]] = float(row["miou"])
    for path in RESULTS.glob("*/**/results.csv"):
        folder = str(path.parent.relative_to(RESULTS))
        for row in rows(path):
            if {"method", "seed", "test_accuracy"} <= row.keys():
                group = folder, *filter(None, (row.get("row"), row.get("column"), row["method"]))
                found[group][row["seed"]] = 100 * float(row["test_accuracy"])
    return {group: [*seeds.values()] for group, seeds in found.items() if len(seeds) > 1}


def of_examples() -> list[Statistic]:
    """Returns the statistics of the accuracies of networks in examples/."""
    groups = {name: v for name, v in accuracies().items() if name[0].split("/")[0] in EXAMPLES}
    return [Statistic("", "", float(np.mean(v)), float(np.std(v, ddof=1))) for v in groups.values()]


def shown(text: str, value: float, rounded: float = 0.0) -> bool:
    """Returns True if the text is the value, rounded to the digits of the text."""
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-digits + rounded + 1e-6


def figures(text: str) -> list[tuple[str, str]]:
    return re.findall(rf"(?<![+\d.]){NUMBER} ± {NUMBER}", text)


def test_the_evidence_has_figures() -> None:
    assert sum(len(figures(page.read_text())) for page in EVIDENCE) > 100


def cells(section: str) -> list[tuple[str, str, str]]:
    """Returns the first cell of the row, the heading and the text of each cell in all tables."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        head, _, *body = [
            [cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()
        ]
        found += [
            (row[0], name, cell) for row in body for name, cell in zip(head, row, strict=True)
        ]
    return found


def of_cell(known: list[Statistic], row: str, heading: str) -> list[Statistic]:
    """Returns the statistics that a cell may show: its row's method, its column's quantity.

    A row names its method by the code alone, or by the code in backticks.
    """
    codes = {row, *re.findall(r"`([^`]+)`", row)} & {each.method for each in known}
    words = heading.lower().replace("training", "train").replace(",", "")
    names = [name for name in QUANTITIES if name.replace("_", " ") in words]
    names = [*names, *(name.replace("accuracy", "error") for name in names)]
    return [
        each
        for each in known
        if (not codes or each.method in codes) and (not names or each.quantity in names)
    ]


def matches(quoted: tuple[str, str], known: list[Statistic]) -> bool:
    mean, deviation = quoted
    return any(
        shown(mean, each.mean, each.rounded) and shown(deviation, each.deviation, each.rounded)
        for each in known
    )


def wrong_figures(text: str) -> list[tuple[str, str, str]]:
    """Returns the figures that no row of the linked results has: row, heading and text."""
    wrong = []
    for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        known = linked(section) if figures(section) else []
        title = section.partition("\n")[0]
        wrong += [(title, "", " ± ".join(x)) for x in figures(section) if not matches(x, known)]
        for row, heading, cell in cells(section):
            fits = of_cell(known, row, heading)
            wrong += [(row, heading, cell) for x in figures(cell) if not matches(x, fits)]
    return wrong


@pytest.mark.parametrize("page", EVIDENCE, ids=lambda page: page.stem)
def test_means_and_deviations_are_of_the_results_that_their_section_links(page: Path) -> None:
    assert wrong_figures(page.read_text()) == []


def test_a_figure_in_the_row_of_another_method_is_found() -> None:
    """The figure is that of a row of the linked csv, only not of this one."""
    text = (DOCS / "evidence" / "digits.md").read_text()
    for mine, other in (("bn", "lcw"), ("lcw", "none"), ("normprop", "cwo")):
        figure, taken = (
            re.search(rf"^\| {x} \| ([\d. ±]+) \|", text, re.MULTILINE) for x in (mine, other)
        )
        assert figure
        assert taken
        changed = text.replace(figure[0], figure[0].replace(figure[1], taken[1]))
        assert [row for row, *_ in wrong_figures(changed)] == [mine]
    loss = re.search(r"^\| bn \| ([\d. ±]+) \| ([\d. ±]+) \|", text, re.MULTILINE)
    assert loss
    assert wrong_figures(text.replace(loss[1], loss[2]))


@pytest.mark.parametrize("page", SUMMARIES, ids=lambda page: page.stem)
def test_each_figure_of_a_summary_is_that_of_its_row(page: Path) -> None:
    """A figure of another method, network or set that stands behind the same words is an error.

    `quoted.csv` names the row of each figure, by the words before it, in the order of the page.
    """
    text, known = " ".join(page.read_text().split()), accuracies()
    listed = [row for row in rows(QUOTED) if ROOT / row["page"] == page]
    found = [*re.finditer(rf"(?<![+\d.]){NUMBER} ± {NUMBER}", text)]
    assert len(found) == len(listed), f"one row of {QUOTED.name} per figure of {page.name}"
    for match, row in zip(found, listed, strict=True):
        before = text[: match.start()].rstrip()
        assert before.endswith(row["before"]), (match[0], row, "the words before a figure changed")
        values = known[row["folder"], *row["row"].split(" | ")]
        assert shown(match[1], float(np.mean(values))), (match[0], row)
        assert shown(match[2], float(np.std(values, ddof=1))), (match[0], row)


class Cost(NamedTuple):
    """A figure of a benchmark in a page.

    Attributes:
        place: the row and the heading of its cell, or the five words before it.
        texts: the ratio and its quartiles, or the bytes alone.
    """

    place: str
    texts: tuple[str, ...]


def costs(text: str) -> list[Cost]:
    """Returns the figures of benchmarks in a page, in their order."""
    found = []

    def search(text: str, beginning: str = "") -> None:
        for match in re.finditer(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]", text):
            before = " ".join(text[: match.start()].split()[-5:])
            found.append(Cost(before or beginning, match.groups()))

    for block in re.split(r"((?:^\|.*\n)+)", text, flags=re.MULTILINE):
        for row, heading, cell in cells(block):
            search(cell, f"{row} | {heading}")
            if heading.startswith("bytes") and re.fullmatch(NUMBER, cell):
                found.append(Cost(f"{row} | {heading}", (cell,)))
        if not cells(block):
            search(" ".join(block.split()))
    return found


def measured(file: str, row: str, column: str) -> list[float]:
    """Returns a ratio with its quartiles, bytes per weight, or bytes over the first row's."""
    table, parts = rows(RESULTS / "bench" / f"{file}.csv"), row.split(" | ")
    (found,) = [each for each in table if [*each.values()][: len(parts)] == parts]
    if column == "gbytes":
        return [float(found[column]) / float(table[0][column])]
    ends = ("", "_low", "_high") if f"{column}_low" in found else ("",)
    return [float(found[f"{column}{end}"]) for end in ends]


def wrong_costs(text: str, listed: list[dict[str, str]]) -> list[Cost]:
    """Returns the figures that are not those of their rows."""
    wrong = []
    for cost, row in zip(costs(text), listed, strict=True):
        values = measured(row["file"], row["row"], row["column"])
        fits = all(shown(*each) for each in zip(cost.texts, values, strict=True))
        wrong += [] if fits and cost.place == row["place"] else [cost]
    return wrong


COSTS = (DOCS / "evidence.md", DOCS / "evidence" / "costs.md")


@pytest.mark.parametrize("page", COSTS, ids=lambda page: page.stem)
def test_each_cost_in_a_page_is_that_of_its_row(page: Path) -> None:
    """`benchmarked.csv` names the row of each figure of a benchmark, in the order of the page."""
    listed = [row for row in rows(BENCHMARKED) if ROOT / row["page"] == page]
    assert listed
    assert wrong_costs(page.read_text(), listed) == []


def test_a_cost_of_another_row_is_found() -> None:
    """Each is one of some benchmark, only not of this one."""
    page = COSTS[1]
    text = page.read_text()
    listed = [row for row in rows(BENCHMARKED) if ROOT / row["page"] == page]
    for figure, taken in (
        ("| lcw | 0.98 [0.96, 1.00] | 1.02 |", "| lcw | 0.98 [0.96, 1.00] | 1.15 |"),
        ("| sn | 1.03 [1.00, 1.05] |", "| sn | 1.00 [0.98, 1.01] |"),
        ("gave `cwo` 1.14 [1.11, 1.17]", "gave `cwo` 1.14 [1.09, 1.18]"),
        ("| Nero | 4.5 [4.0, 5.7] | 50 |", "| Nero | 4.5 [4.0, 5.7] | 57 |"),
    ):
        assert text.count(figure) == 1
        assert wrong_costs(text.replace(figure, taken), listed)


def test_figures_of_the_compilers() -> None:
    text = (DOCS / "evidence.md").read_text()
    quoted = re.search(
        rf"{NUMBER} times the memory traffic .* (\d+) collectives instead of (\d+)", text
    )
    assert quoted is not None
    table = rows(RESULTS / "compiled" / "resnet50" / "compiled.csv")
    steps = [row for row in table if (row["target"], row["dtype"]) == ("v5e:4x4", "bfloat16")]
    none, bn = (next(row for row in steps if row["method"] == name) for name in ("none", "bn"))
    assert shown(quoted[1], float(bn["hbm_ratio"]))
    assert [quoted[2], quoted[3]] == [bn["collectives"], none["collectives"]]


@pytest.mark.slow
def test_predicted_depths() -> None:
    """C'(1) of every network in the table of depth, and the layers until the product is e^6."""
    slopes = {
        "ReLU, batch": c_slope(standardized(jax.nn.relu)),
        "ReLU, normalization": c_slope(standardized(jax.nn.relu)),
        "ReLU, He": c_slope(jax.nn.relu),
        "SELU": c_slope(jax.nn.selu),
        "tanh,": c_slope(jnp.tanh),
        "tanh tailored": c_slope(shaped(jnp.tanh, 30)),
        "**tanh tailored": c_slope(shaped(jnp.tanh, 30)),
        "tanh by deep": c_slope(shaped(jnp.tanh, 30, "dks")),
        "leaky": c_slope(shaped(jax.nn.leaky_relu, 30)),
    }
    text = (DOCS / "evidence" / "theory.md").read_text()
    quoted = re.findall(r"^\| (.+?) \| (1\.\d{4}) \| (\w[\w ]*) \|", text, re.MULTILINE)
    assert len(quoted) == 11
    for network, slope, depth in quoted:
        (expected,) = {value for name, value in slopes.items() if network.startswith(name)}
        assert shown(slope, expected), network
        if depth != "no limit":
            assert int(depth) == int(6 / math.log(expected))
    # tanh, q E tanh'(sqrt(q) Z)^2 / E tanh(sqrt(q) Z)^2 by quadrature of NumPy.
    z, weights = np.polynomial.hermite_e.hermegauss(100)
    q, product = 1.0, 1.0
    for _ in range(110):
        values = np.tanh(q**0.5 * z)
        after = values**2 @ weights / weights.sum()
        product *= q * ((1 - values**2) ** 2 @ weights / weights.sum()) / after
        q = after
    assert f"the product of 110 layers is {product:.1f}." in text


def test_the_table_of_ageing_is_that_of_its_runs() -> None:
    folder = RESULTS / "networks" / "ageing"
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    page = (folder / "README.md").read_text()
    cells = {
        (name.lower(), int(batch), age): (test, loss)
        for name, batch, line in re.findall(r"^\| (SGD|AdamW),.*? \| (\d+) \| (.*) \|$", page, re.M)
        for age, cell in zip(("fixed", "500", "50", "averaged"), line.split(" | "), strict=True)
        for test, loss in [cell.split("; ")]
    }
    assert len(cells) == len(runs) == 16
    for run in runs:
        test, loss = cells[run["optimizer"], run["batch"], run["age"]]
        assert shown(test, run["test"])
        assert shown(loss, run["training_loss"])
