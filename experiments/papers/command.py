"""The commands ``paper`` and ``report``."""

from pathlib import Path

from experiments.analysis.differences import write_pairs
from experiments.analysis.table import show_table
from experiments.analysis.verdicts.page import write_page
from experiments.commands import ALL, Paper, Report
from experiments.errors import UserError
from experiments.papers.collected import collect
from experiments.papers.items import find_items
from experiments.papers.page import PAGE, write_items
from experiments.papers.run import check_replaceable, items_table, run_item


def reproduce(flags: Paper, command: str) -> None:
    """Runs or lists items.

    Args:
        flags: the command's flags.
        command: the user's command, for the reports.
    """
    if flags.list or not flags.item:
        show_table(items_table(find_items(ALL)))
        return
    items = find_items(flags.item)
    alone = len(items) == 1 and flags.out is not None
    folder = flags.out or Path("results")
    folders = [folder if alone else folder / item.name for item in items]
    for item, out in zip(items, folders, strict=True):  # Before the first of them runs.
        check_replaceable(out, item, flags.preset, flags.set)
    for item, out in zip(items, folders, strict=True):
        run_item(item, flags.preset, flags.data_dir, out, command, flags.workers, flags.set)


def gather(flags: Report) -> None:
    """Writes the page that the flags name; raises UserError for flags of two pages."""
    pages = {"pairs": flags.pairs, "verdicts": flags.verdicts, "items": flags.items}
    if len(named := [f"--{name}" for name, value in pages.items() if value]) > 1:
        raise UserError(f"{' and '.join(named)} each write a page of its own; wanted one of them.")
    if flags.pairs:
        count = write_pairs(flags.folder, flags.pairs)
        print(f"Compared on {count} sets in {flags.folder / 'differences.md'}.")
        return
    if flags.verdicts:
        count = write_page(flags.folder)
        print(f"Judged {count} claims in {flags.folder / 'README.md'}.")
        return
    if flags.items:
        items = find_items(ALL)
        count = write_items(items, flags.folder)
        print(f"{count} of {len(items)} items have a report: {flags.folder / PAGE}.")
        return
    items, out = find_items(ALL), flags.folder / "report.md"
    count = collect(items, flags.folder, out)
    print(f"Gathered {count} of {len(items)} items in {out}.")
