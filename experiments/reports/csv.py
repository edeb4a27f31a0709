"""The CSV files; accuracies in them are fractions from 0 to 1."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.reports.files import write_whole
from experiments.runs.measures import MEASURES
from experiments.runs.spec import own_settings
from experiments.training.fit import Run
from experiments.training.history import Epoch

RESULTS_COLUMNS = ("method", "seed", "epochs", *MEASURES, "step_ms", "parameters", "outcome")
CURVES_COLUMNS = ("method", "seed", *Epoch._fields)


def write_results(path: Path, runs: Iterable[Run]) -> None:
    """One row a run, of its last epoch; with columns for settings that runs have of their own."""
    runs = list(runs)
    own = own_settings(run.changes for run in runs)
    write_csv(path, (*RESULTS_COLUMNS, *own), (_result(run, own) for run in runs))


def write_curves(path: Path, runs: Iterable[Run]) -> None:
    """One row an epoch of each run."""
    rows = ((run.method, run.seed, *_rounded(entry)) for run in runs for entry in run.curve)
    write_csv(path, CURVES_COLUMNS, rows)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A header and the rows, written whole."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def _result(run: Run, own: Sequence[str]) -> tuple[object, ...]:
    epochs, *measures = _rounded(run.curve[-1][: 1 + len(MEASURES)])
    costs, changes = (f"{run.step_ms:.4g}", run.parameters), dict(run.changes)
    own_values = (changes.get(name, "") for name in own)
    return (run.method, run.seed, epochs, *measures, *costs, run.outcome, *own_values)


def _rounded(entry: Sequence[float]) -> tuple[object, ...]:
    """The epoch's number and its measures with six significant digits."""
    number, *measures = entry
    return (number, *(f"{measure:.6g}" for measure in measures))
