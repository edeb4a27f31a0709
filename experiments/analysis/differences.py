"""Pairs of methods over several comparisons: the gain of the second over the first, by set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float

from experiments.analysis.colours import colour_of_method
from experiments.analysis.picture import new_figure, picture
from experiments.analysis.statistics import above, interval, mean_and_interval
from experiments.analysis.table import markdown
from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.runs.files import write_whole

Pair = tuple[str, str]

#: Points of test accuracy of the second of a pair above the first: by seed for each set, then the
#: sets' means.
Gains = Mapping[Pair, Sequence[Float[np.ndarray, " _"]]]

WANTED = "wanted FIRST:SECOND,FIRST:SECOND, methods of every FOLDER/SET/results.csv"

NOTE = (
    "Points of test accuracy that the second method has above the first, under the same seed: the\n"
    "mean, and the 95% interval of Student's t over seeds; in the last row over the sets' means.\n"
    "Behind an interval, + and - say that the whole of it is on one side. Nothing stands where a\n"
    "run of either method did not train."
)


def write_pairs(folder: Path, pairs: str) -> int:
    """Writes FOLDER/differences.md and .png; returns the number of sets.

    Args:
        folder: a folder with one subfolder per set, which holds the results.csv of compare.
        pairs: pairs of methods, ``FIRST:SECOND,FIRST:SECOND``.

    Raises:
        UserError: for malformed pairs, or missing runs.
    """
    named = [tuple(each.split(":")) for each in pairs.split(",")]
    files = sorted(folder.glob("*/results.csv"))
    if not files or any(len(pair) != 2 or pair[0] == pair[1] for pair in named):
        raise UserError(f"got --pairs {pairs} and {len(files)} sets in {folder}; {WANTED}.")
    rows = [*(file.parent.name for file in files), "all"]
    gains = {(first, second): _by_set(files, (first, second)) for first, second in named}
    write_whole(folder / "differences.md", f"{_table(rows, gains)}\n\n{NOTE}\n", flag="--folder")
    write_whole(folder / "differences.png", _draw(rows, gains), flag="--folder")
    return len(files)


def _gains(file: Path, pair: Pair) -> Float[np.ndarray, " seeds"]:
    """Returns the gains by seed; empty if a run did not train."""
    runs = _runs(file).filter(pl.col("method").is_in(pair)).sort("seed")
    first, second = (runs.filter(pl.col("method") == name) for name in pair)
    if first.is_empty() or not first["seed"].equals(second["seed"]):
        raise UserError(f"{file} has not the same seeds of {' and '.join(pair)}; {WANTED}.")
    if runs["outcome"].is_not_null().any():
        return np.zeros(0)
    accuracies = (each["test_accuracy"].cast(pl.Float64).to_numpy() for each in (second, first))
    mine, theirs = (100 * each for each in accuracies)
    gains: Float[np.ndarray, " seeds"] = mine - theirs
    return gains


def _runs(file: Path) -> pl.DataFrame:
    """Returns the rows of a results.csv as compare writes it, as text.

    Raises:
        UserError: for a file that is none, for a run that is in it twice, which would count twice,
            and for accuracies that are no fractions.
    """
    with reading(file, "wanted results.csv as compare writes it: write it anew"):
        runs = pl.read_csv(file, infer_schema=False)
        trained = runs.filter(pl.col("outcome").is_null())["test_accuracy"].cast(pl.Float64)
        if runs.select("method", "seed").is_duplicated().any():
            raise ValueError("it has a method with one seed twice")
        if trained.has_nulls() or not trained.is_between(0, 1).all():
            raise ValueError("its test accuracies are not all fractions from 0 to 1")
        return runs


def _by_set(files: Sequence[Path], pair: Pair) -> list[Float[np.ndarray, " _"]]:
    """Returns the gains of a pair by set, and their means over the sets whose runs trained."""
    gains = [_gains(file, pair) for file in files]
    return [*gains, np.array([values.mean() for values in gains if len(values)])]


def _table(rows: Sequence[str], gains: Gains) -> str:
    header = ("set", *(f"{second} - {first}" for first, second in gains))
    cells = (map(_cell, values) for values in gains.values())
    return markdown((header, list(zip(rows, *cells, strict=True))))


def _cell(values: Float[np.ndarray, " n"]) -> str:
    side = {True: " +", False: " -", None: ""}[above(*interval(values)) if len(values) else None]
    return f"{mean_and_interval(values, '+.2f')}{side}"


def _draw(rows: Sequence[str], gains: Gains) -> bytes:
    """Draws a row per set, with a mark and a bar per pair; the mean of all sets is the last row.

    A pair has the colour of its first method, which the second varies.
    """
    figure = new_figure(width=8.0, height=1.2 + 0.42 * len(rows))
    axes, places = figure.axes[0], np.arange(len(rows))
    for index, ((first, second), by_row) in enumerate(gains.items()):
        drawn = [place for place, values in enumerate(by_row) if len(values) > 1]
        means = np.array([by_row[place].mean() for place in drawn])
        ends = np.array([interval(by_row[place]) for place in drawn]).reshape(-1, 2)
        bars, offset = np.abs(ends.T - means), 0.16 * (index - (len(gains) - 1) / 2)
        colour = colour_of_method(first)
        style: dict[str, Any] = {"fmt": "os^Dv"[index % 5], "color": colour, "markersize": 4}
        axes.errorbar(
            means, places[drawn] + offset, xerr=bars, label=second, elinewidth=1.2, **style
        )
    axes.axvline(0, color="0.4", linewidth=1)
    axes.axhline(len(rows) - 1.5, color="0.8", linewidth=1)
    axes.set_yticks(places, rows)
    axes.invert_yaxis()
    axes.set(xlabel="points of test accuracy above the method that it varies")
    figure.legend(loc="outside upper center", ncols=len(gains), fontsize=9, frameon=False)
    return picture(figure)
