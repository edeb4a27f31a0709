"""Where depth breaks: each method in plain networks of more and more layers."""

import math
from pathlib import Path

from experiments.reports.table import mean_and_deviation
from experiments.verdicts.seen import Row, outcome_of, rows_of

#: Layers and the csv file.
DEPTHS = tuple((layers, f"depth/{layers}/results.csv") for layers in (3, 10, 30))

DEPTH_NOTE = (
    "Plain ReLU networks, of layers as the columns say, on photographs of clothes (Fashion-MNIST): "
    "test accuracies in percent over the seeds, each method at the learning rate that did best on "
    "held-out training rows. No claim of a paper, but what one asks first of a normalizer."
)


def depth_table(folder: Path) -> str:
    """A row a method, a column a depth."""
    tables = {layers: rows_of(folder / results) for layers, results in DEPTHS}
    methods = dict.fromkeys(row["method"] for rows in tables.values() for row in rows)
    lines = [f"| method | {' | '.join(f'{layers} layers' for layers in tables)} |"]
    lines.append("|---" * (1 + len(tables)) + "|")
    for method in methods:
        runs = ([row for row in rows if row["method"] == method] for rows in tables.values())
        lines.append(f"| {method} | {' | '.join(map(_cell, runs))} |")
    return "\n".join(lines)


def _cell(rows: list[Row]) -> str:
    """The accuracy, and the rates that were chosen."""
    rates = "/".join(dict.fromkeys(f"{float(row['learning_rate']):g}" for row in rows))
    return f"{accuracy_of(rows)} (rate {rates})"


def accuracy_of(rows: list[Row]) -> str:
    """The test accuracy of runs that are finite, in percent, and how many were lost."""
    finite = [row for row in rows if math.isfinite(float(row["test_accuracy"]))]
    found = (
        mean_and_deviation([100 * float(row["test_accuracy"]) for row in finite], ".2f")
        if finite
        else ""
    )
    outcomes = [said for row in rows if (said := outcome_of(row))]
    lost = [f"{said} {outcomes.count(said)} of {len(rows)}" for said in dict.fromkeys(outcomes)]
    return ", ".join(filter(None, [found, *lost]))
