"""Results of one side of a claim, from a csv file: a value per seed, and the lost runs."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from experiments.analysis.statistics import wins
from experiments.analysis.verdicts.claim import Side
from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.training.fit import outcome_beside

#: The number of classes of every set of images; the loss of a constant guess follows from it.
CLASSES = 10

Row = Mapping[str, str]

WANTED = "wanted a csv file as compare and paper write it: restore it, or run that again"


class SideResults(NamedTuple):
    """Results of the runs of a side.

    Attributes:
        name: the name of the runs.
        values: the measure by seed; by data set for wins.
        lost: the failure by seed of each run that did not train.
        seeds: the seeds behind the values.
        fitted: the mean training accuracy, or NaN if the file has none.
        excess: for wins, the points of the median error above the paper's.
    """

    name: str
    values: Mapping[str, float]
    lost: Mapping[str, str]
    seeds: frozenset[str]
    fitted: float = math.nan
    excess: float = math.nan


@cache
def rows_of(path: Path) -> tuple[Row, ...]:
    """Reads the rows of a csv file."""
    if not path.is_file():
        raise UserError(f"there is no {path}; run what writes it, or take the claim out.")
    with reading(path, WANTED):
        table = pl.read_csv(path, infer_schema=False).fill_null("")
        if len(twice := table.filter(table.is_duplicated())):
            raise ValueError(f"the line {','.join(twice.row(0))} is there twice")
        return tuple(table.to_dicts())


def rows_like(side: Side, folder: Path) -> list[Row]:
    """Returns the rows of a side; raises UserError if there are none."""
    picked = [row for row in rows_of(folder / side.file) if side.where.items() <= row.items()]
    if not picked:
        raise UserError(
            f"{folder / side.file} has no row with {dict(side.where)}; wanted the runs of "
            f"{side.name!r}: restore the file, or correct what asks for them."
        )
    return picked


def side_results(side: Side, measure: str, folder: Path) -> SideResults:
    """Reads the results of one side of a claim.

    Args:
        side: the side.
        measure: the column that the claim compares.
        folder: the folder of results.
    """
    with reading(folder / side.file, WANTED):
        if measure == "wins":
            return _wins(side, rows_of(folder / side.file))
        return results_by_seed(side.name, rows_like(side, folder), measure)


def results_by_seed(name: str, rows: Sequence[Row], measure: str) -> SideResults:
    """Returns the value of each seed, in the order of seeds.

    A seed with several rows, such as the units of a layer, has their median. A lost run counts as a
    constant guess.
    """
    guess = 1 / CLASSES if measure.endswith("accuracy") else math.log(CLASSES)
    values, lost, fitted = defaultdict(list), {}, []
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        outcome = outcome_of(row)
        values[row["seed"]].append(guess if outcome else float(row[measure]))
        fitted.append(1 / CLASSES if outcome else float(row.get("train_accuracy") or math.nan))
        if outcome:
            lost[row["seed"]] = outcome
    medians = {seed: float(np.median(each)) for seed, each in values.items()}
    return SideResults(name, medians, lost, frozenset(medians), float(np.mean(fitted)))


def outcome_of(row: Row) -> str:
    """Returns the failure of a run, from its file or by its final training loss."""
    if row.get("outcome"):
        return row["outcome"].split(",")[0]
    return outcome_beside(float(row.get("train_loss") or 0), math.log(CLASSES))


def _wins(side: Side, rows: Sequence[Row]) -> SideResults:
    """Counts the data sets on which a normalization wins among all with its activation."""
    name, column = side.where["normalization"], pl.col("test_error")
    runs = pl.DataFrame(rows).filter(activation=side.where["activation"])
    runs = runs.with_columns(column.cast(float))
    errors = runs.pivot(
        "normalization", index="dataset", values="test_error", aggregate_function="mean"
    )
    place = errors.columns[1:].index(name)
    won = {each: float(wins(np.array([means]))[place]) for each, *means in errors.iter_rows()}
    reported = runs.filter(pl.col("reported_error") != "", normalization=name)
    above = reported.select(100 * (column - pl.col("reported_error").cast(float)))
    return SideResults(side.name, won, {}, frozenset(runs["seed"]), excess=above.median().item())
