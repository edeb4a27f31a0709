"""One page with all reports."""

from pathlib import Path

from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.papers.item import Item
from experiments.runs.files import write_whole

TITLE = "# The papers' tables and figures\n\nOurs beside the paper's, from the reports in {folder}."


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
        raise UserError(
            f"{folder} holds no report; wanted PAPER/ITEM/report.md in it: run python -m "
            "experiments paper ITEM first, or give the folder of reports as --folder."
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
