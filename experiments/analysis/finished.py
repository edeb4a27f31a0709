"""The runs of a store: a table on the screen, and a csv file."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from experiments.analysis.measures import MEASURES
from experiments.analysis.table import show_table
from experiments.errors import UserError
from experiments.runs.files import write_whole
from experiments.runs.outputs import names_of
from experiments.runs.spec import OFFSET, shown
from experiments.runs.store import FILE, Row, Store

#: The words on what the table does not have.
NO_MEANS = (
    "Accuracies are the lowest and the highest of those that trained. Runs before and after an "
    "edit of the data are among them: table.md has the means of one state, --csv has every run."
)

#: Columns that a table of runs has, and no other file of the commands.
OWN_COLUMNS = ("method", "seed", "last_epoch", "date")


def show_runs(folder: Path, csv: Path | None = None) -> None:
    """Prints one row per method and settings, and writes one row per run.

    Both have a column for the folders if there are several.

    Args:
        folder: the folder of the store, or of several networks' folders.
        csv: the file to write; None to write none.

    Raises:
        UserError: for a folder without runs, or a damaged store.
    """
    stores = [Store(folder), *(Store(each.parent) for each in sorted(folder.glob(f"*/{FILE}")))]
    found = {store.path: rows for store in stores if (rows := store.rows())}
    if not found:
        raise UserError(
            f"{folder} holds no finished runs; wanted the --out of train, compare or paper."
        )
    rows = [row for each in found.values() for row in each]
    runs = frame(rows)
    if len(found) > 1:
        folders = [path.parent.relative_to(folder) for path, each in found.items() for _ in each]
        runs = runs.select(pl.Series("folder", map(str, folders)), pl.all())
    if csv is not None:
        _check_replaceable(csv)
        write_whole(csv, runs.write_csv(), "--csv")
    table = summary(runs)
    lines = [[_text(value) for value in row] for row in table.iter_rows()]
    show_table(([name.replace("_", " ") for name in table.columns], lines))
    places = ", ".join(map(str, found))
    print(f"\n{len(rows)} runs in {places}.\n{NO_MEANS}")


def _check_replaceable(csv: Path) -> None:
    """Raises UserError for a file that holds anything but a table of runs as `show_runs` writes it.

    Such as the store itself, or the results.csv beside it, which has other columns.
    """
    if not csv.is_file():
        return
    if not set(OWN_COLUMNS) <= set(names_of(csv)):
        raise UserError(
            f"--csv is {csv}, which is there and is no table of runs of this command; wanted a "
            "name that is free: what it holds would be lost."
        )


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Returns one row per run: its method, the settings in which runs differ, its seed and results.

    A setting that a run does not have is missing; the results of a run that diverged are NaN.
    """
    first = rows[0].spec if rows else {}
    names = dict.fromkeys(name for row in rows for name in row.spec)
    varied = [name for name in names if any(row.spec.get(name) != first.get(name) for row in rows)]
    settings = [name for name in varied if name not in ("method", "seed", "data")]
    runs = pl.DataFrame([_flat(row, settings) for row in rows], infer_schema_length=None)
    if not any(row.run.seed >= OFFSET for row in rows):
        return runs
    trial = pl.when(pl.col("seed") >= OFFSET).then(pl.lit("held-out rows, a trial"))
    return runs.with_columns(trial.otherwise(pl.lit("test rows")).alias("tested on"))


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """Returns one row per method, settings and program.

    It has no mean, as no run says whether another seed is of the same data.
    """
    if runs.is_empty():
        return runs
    results = {"seed", "last_epoch", *MEASURES, "step_ms", "parameters", "outcome", "date"}
    settings = [name for name in runs.columns if name not in results]
    trained = pl.col("outcome") == ""
    accuracy = pl.col("test_accuracy").filter(trained)
    return runs.group_by(settings, maintain_order=True).agg(
        runs=pl.len(),
        failed=(~trained).sum(),
        lowest_accuracy=accuracy.min(),
        highest_accuracy=accuracy.max(),
        date=pl.col("date").max(),
    )


def _flat(row: Row, settings: Sequence[str]) -> dict[str, object]:
    run, last = row.run, row.run.curve[-1]
    values = {name: row.spec.get(name) for name in settings}
    return {
        "method": run.method,
        **{name: None if value is None else shown(value) for name, value in values.items()},
        "seed": run.seed,
        "last_epoch": last.epoch,
        **{name: getattr(last, name) for name in MEASURES},
        "step_ms": run.step_ms,
        "parameters": run.parameters,
        "outcome": run.outcome,
        "program": row.program,
        **{name: text for name, text in row.versions.items() if text},
        "date": row.date,
    }


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
