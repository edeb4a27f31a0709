"""The csv files of a comparison; accuracies in them are fractions from 0 to 1."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.analysis.measures import MEASURES
from experiments.runs.files import write_whole
from experiments.runs.spec import own_settings
from experiments.training.run import Epoch, Run

RESULTS_COLUMNS = ("method", "seed", "epochs", *MEASURES, "step_ms", "parameters", "outcome")
CURVES_COLUMNS = ("method", "seed", *Epoch._fields)


def write_results(path: Path, runs: Iterable[Run]) -> None:
    """Writes one row per run, of its last epoch, with columns for scores and varying settings."""
    runs = list(runs)
    varied = own_settings(run.changes for run in runs)
    scores = tuple(dict.fromkeys(name for run in runs for name in run.scores))
    rows = (_result(run, scores, varied) for run in runs)
    write_csv(path, (*RESULTS_COLUMNS, *scores, *varied), rows)


def write_curves(path: Path, runs: Iterable[Run]) -> None:
    """Writes one row per epoch and run."""
    rows = ((run.method, run.seed, *_rounded(entry)) for run in runs for entry in run.curve)
    write_csv(path, CURVES_COLUMNS, rows)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a header and rows as one file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def _result(run: Run, scores: Sequence[str], varied: Sequence[str]) -> tuple[object, ...]:
    epochs, *measures = _rounded(run.curve[-1][: 1 + len(MEASURES)])
    costs, changes = (f"{run.step_ms:.4g}", run.parameters), dict(run.changes)
    scored = (f"{run.scores[name]:.6g}" if name in run.scores else "" for name in scores)
    values = (changes.get(name, "") for name in varied)
    return (run.method, run.seed, epochs, *measures, *costs, run.outcome, *scored, *values)


def _rounded(entry: Sequence[float]) -> tuple[object, ...]:
    """Returns the epoch's number, and its measures with six significant digits."""
    number, *measures = entry
    return (number, *(f"{measure:.6g}" for measure in measures))
