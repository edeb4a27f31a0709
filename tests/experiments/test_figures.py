"""Figures on the pages are those of the committed results, to the digits that are printed."""

import csv
import itertools
import math
import re
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import shaped, standardized
from jaxnorm.theory import c_slope

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "experiments" / "results"
EVIDENCE = sorted((DOCS / "evidence").glob("*.md"))
SUMMARIES = [ROOT / "README.md", DOCS / "evidence.md", DOCS / "guides" / "which.md"]
#: The folders of the results of `examples/`.
EXAMPLES = {"networks", "resnet18"}
QUANTITIES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "step_ms")
NUMBER = r"(\d+(?:\.\d+)?)"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def over_seeds() -> dict[str, set[tuple[float, float, float]]]:
    """Returns mean, deviation and rounding error of each method's quantities, by folder."""
    statistics: dict[str, set[tuple[float, float, float]]] = defaultdict(set)
    for path in RESULTS.glob("*/**/results.csv"):
        groups, known = defaultdict(list), statistics[str(path.parent.relative_to(RESULTS))]
        for row in rows(path):
            if {"method", "seed"} <= row.keys():
                groups[row.get("row"), row.get("column"), row["method"]].append(row)
        for group, name in itertools.product(groups.values(), QUANTITIES):
            if name not in group[0]:
                continue
            values = np.array([float(row[name]) for row in group])
            rounded = 0.005 if name == "step_ms" else 0.0
            if "accuracy" in name:
                values = 100 * values
                known.add((100 - values.mean(), values.std(ddof=1), rounded))
            known.add((values.mean(), values.std(ddof=1), rounded))
    return statistics


def linked(text: str) -> set[tuple[float, float, float]]:
    """Returns the statistics of the sets of results that a text names: folders in results/."""
    names = set(re.findall(r"results/([\w.-]+)", text))
    known = {
        each
        for folder, statistics in over_seeds().items()
        if folder.partition("/")[0] in names
        for each in statistics
    }
    return known | (of_examples() if names & EXAMPLES else set())


def of_examples() -> set[tuple[float, float, float]]:
    """Returns mean, deviation and rounding error of the accuracies of networks in examples/."""
    accuracies: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for folder in ("resnet18", "resnet18/h100"):  # the last update of each seed counts
        for row in rows(RESULTS / folder / "curves.csv"):
            accuracies[folder, row["network"], row["rate"]][row["seed"]] = float(row["accuracy"])
    for folder in ("networks", "networks/longer", "networks/photographs", "networks/adam"):
        for row in rows(RESULTS / folder / "runs.csv"):
            group = folder, row["network"], row["method"], row["rate"]
            accuracies[group][row["seed"]] = float(row["test"])
    for row in rows(RESULTS / "segmentation" / "runs.csv"):
        accuracies["segmentation", row["norm"], row["rate"]][row["seed"]] = float(row["miou"])
    groups = [np.array([*seeds.values()]) for seeds in accuracies.values() if len(seeds) > 1]
    return {(values.mean(), values.std(ddof=1), 0.0) for values in groups}


def benchmarked() -> tuple[set[tuple[float, ...]], set[float]]:
    """Returns ratios of time with their quartiles, and ratios of bytes to the first method's."""
    times, traffic = set(), set()
    for path in (RESULTS / "bench").glob("*.csv"):
        table = rows(path)
        for row in table:
            for kind in ("ratio", "speedup"):
                if kind in row:
                    times.add(tuple(float(row[f"{kind}{end}"]) for end in ("", "_low", "_high")))
            if "gbytes" in row:
                traffic.add(float(row["gbytes"]) / float(table[0]["gbytes"]))
    return times, traffic


def shown(text: str, value: float, rounded: float = 0.0) -> bool:
    """Returns True if the text is the value, rounded to the digits of the text."""
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-digits + rounded + 1e-6


def figures(text: str) -> list[tuple[str, str]]:
    return re.findall(rf"(?<![+\d.]){NUMBER} ± {NUMBER}", text)


def test_the_evidence_has_figures() -> None:
    assert sum(len(figures(page.read_text())) for page in EVIDENCE) > 100


@pytest.mark.parametrize("page", EVIDENCE, ids=lambda page: page.stem)
def test_means_and_deviations_are_of_the_results_that_their_section_links(page: Path) -> None:
    for section in re.split(r"^(?=#+ )", page.read_text(), flags=re.MULTILINE):
        quoted = figures(section)
        known = linked(section) if quoted else set()
        for mean, deviation in quoted:
            matches = [shown(mean, m, r) and shown(deviation, d, r) for m, d, r in known]
            assert any(matches), (section.splitlines()[0], mean, deviation)


@pytest.mark.parametrize("page", SUMMARIES, ids=lambda page: page.stem)
def test_figures_of_a_summary_stand_on_a_page_of_evidence_or_beside_a_link(page: Path) -> None:
    text = page.read_text()
    evidence = {quoted for each in EVIDENCE for quoted in figures(each.read_text())}
    known = linked(text) | of_examples() | {(float(m), float(d), 0.0) for m, d in evidence}
    assert len(figures(text)) > 5
    for mean, deviation in figures(text):
        matches = [shown(mean, m, r) and shown(deviation, d, r) for m, d, r in known]
        assert any(matches), (mean, deviation)


def columns(text: str, beginning: str) -> list[str]:
    """Returns the cells below every heading with that beginning, in all tables."""
    cells = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *body = [[cell.strip() for cell in row.split("|")] for row in table.splitlines()]
        places = [n for n, name in enumerate(head) if name.startswith(beginning)]
        cells += [row[n] for row in body for n in places]
    return cells


@pytest.mark.parametrize(("page", "least"), [("evidence.md", 3), ("evidence/costs.md", 80)])
def test_costs_of_the_benchmarks(page: str, least: int) -> None:
    times, _ = benchmarked()
    quoted = re.findall(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]", (DOCS / page).read_text())
    assert len(quoted) >= least
    for texts in quoted:
        assert any(all(map(shown, texts, values)) for values in times), texts


def test_bytes_of_the_benchmarks() -> None:
    text = (DOCS / "evidence" / "costs.md").read_text()
    _, traffic = benchmarked()
    update = {float(row["bytes_per_weight"]) for row in rows(RESULTS / "bench" / "update.csv")}
    per_weight = columns(text, "bytes per weight")
    assert len(per_weight) == 10
    assert all(any(shown(cell, value) for value in update) for cell in per_weight)
    ratios = [cell for cell in columns(text, "bytes") if "." in cell]
    assert len(ratios) > 10
    for ratio in ratios:
        assert any(shown(ratio, value) for value in traffic), ratio


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
