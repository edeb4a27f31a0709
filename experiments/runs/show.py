"""The runs of a store: a table on the screen, and a csv file."""

from pathlib import Path

from experiments.errors import UserError
from experiments.reports.files import write_whole
from experiments.reports.show import show_table
from experiments.runs.analyse import frame, summary
from experiments.runs.store import Store


def show_runs(folder: Path, csv: Path | None = None) -> None:
    """Prints one row per method and settings, and writes one row per run.

    Args:
        folder: the folder of the store.
        csv: the file to write; None to write none.

    Raises:
        UserError: for a folder without runs, or a damaged store.
    """
    store = Store(folder)
    rows = store.rows()
    if not rows:
        raise UserError(f"{folder} holds no runs; wanted the --out of train, compare or paper.")
    runs = frame(rows)
    if csv is not None:
        write_whole(csv, runs.write_csv(), "--csv")
    table = summary(runs)
    shown = [[_text(value) for value in row] for row in table.iter_rows()]
    show_table(([name.replace("_", " ") for name in table.columns], shown))
    print(f"\n{len(rows)} runs in {store.path}; means of those that trained.")


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
