"""One page with all reports."""

from pathlib import Path

from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.papers.item import Item
from experiments.runs.files import write_whole

HEADING = "# The papers' tables and figures"
TITLE = HEADING + "\n\nOurs beside the paper's, from the reports in {folder}."


def no_report(folder: Path) -> UserError:
    """Makes the error for a folder without a report of any item."""
    kind = "holds no report" if folder.is_dir() else "is no folder, and holds no report"
    return UserError(
        f"{folder} {kind}; wanted PAPER/ITEM/report.md in it: run python -m experiments paper ITEM "
        "first, or give the folder of reports as --folder."
    )


def is_gathered(path: Path) -> bool:
    """Returns True for a page that `collect` wrote, whose name is that of a report."""
    with path.open("rb") as file:
        return file.read(len(HEADING) + 1) == f"{HEADING}\n".encode()


def collect(items: list[Item], folder: Path, out: Path) -> int:
    """Writes one page with the reports in a folder, and a list of items that have not been run.

    Args:
        items: all items, in the order of the page.
        folder: the folder of the reports, FOLDER/PAPER/ITEM/report.md.
        out: the path of the page.

    Returns:
        The number of reports on it.
    """
    paths = {item.name: folder / item.name / "report.md" for item in items}
    present = {name: path for name, path in paths.items() if path.is_file()}
    if not present:
        raise no_report(folder)
    if out.is_file() and not is_gathered(out):
        raise UserError(
            f"{out} is no page of this command, and would be replaced by it; wanted a --folder of "
            "the reports alone, PAPER/ITEM/report.md: move that file to where its item belongs."
        )
    missing = [f"- {item.name}: {item.title}" for item in items if item.name not in present]
    parts = [TITLE.format(folder=folder.name)]
    parts += [_linked(path, out.parent) for path in present.values()]
    if missing:
        parts.append("\n".join(["# Not run", "", *missing]))
    write_whole(out, "\n\n".join(parts) + "\n", flag="--folder")
    return len(present)


def _linked(report: Path, base: Path) -> str:
    """Returns a report with the paths of its pictures relative to the page."""
    where = report.parent.relative_to(base)
    with reading(report, "wanted a report as paper writes it: remove it, and run its item again"):
        text = report.read_text(encoding="utf-8")
    return text.strip().replace("](", f"]({where.as_posix()}/")
