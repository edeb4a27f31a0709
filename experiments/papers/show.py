"""What `paper` prints of the items without training them."""

from collections.abc import Sequence
from pathlib import Path

from experiments.papers.check import check, check_table, summary
from experiments.papers.dry_run import dry_table
from experiments.papers.full_step import memory_table, step_table
from experiments.papers.item import Item
from experiments.reports.csv import write_csv
from experiments.reports.files import prepare_folder
from experiments.reports.show import show_table


def show_check(items: Sequence[Item]) -> None:
    """What differs from the papers' texts; of one item everything, and its networks' shapes."""
    checked = [each for item in items for each in check(item)]
    show_table(check_table(checked, everything=len(items) == 1))
    print(f"\n{summary(checked)}")
    if len(items) == 1 and items[0].grid:
        print("\nWithout training, from shapes alone:\n")
        show_table(dry_table(items[0]))


def show_steps(
    items: Sequence[Item], memory: bool, one_step: bool, gib: float, out: Path | None
) -> None:
    """What steps of the items' networks need, and what one finds; as files too if ``out`` is one.

    Args:
        items: any.
        memory: whether what they need is shown.
        one_step: whether one is done of each.
        gib: what such a step may take.
        out: the folder to write memory.csv and step.csv to, or None.
    """
    tables = {}
    if memory:
        tables["memory"] = memory_table(items)
    if one_step:
        tables["step"] = step_table(items, gib)
    for name, table in tables.items():
        show_table(table)
        if out is not None:
            prepare_folder(out)
            write_csv(out / f"{name}.csv", *table)
            print(f"Written to {out}: {name}.csv.")
