"""The page of a comparison, and its mark from the time that a later call writes beside it."""

import os
from collections.abc import Iterable
from pathlib import Path

from experiments.runs.files import text_in, write_whole
from experiments.runs.outputs import PAGE, is_page
from experiments.runs.processes import writes

#: The first line of a page since which another call trained or wrote in its folder.
STALE = (
    "**Of earlier runs**, as may be some of the files beside it: a call since then has trained or "
    "written here. `compare` writes all of them anew when it ends."
)


def mark(pages: Iterable[Path], trains: bool = True, table: str = "") -> None:
    """Says in pages that are there that a call trains or writes beside them.

    The page over several networks, to which the folder of one of them belongs, says so, too, if the
    call trains, or if that page has not this table.

    Args:
        pages: the files.
        trains: whether the call trains.
        table: the table of the runs that it writes.
    """
    if not writes():
        return
    for page in pages:
        _mark(page)
        for above in _above(page):
            if trains or table not in text_in(above):
                _mark(above)


def _mark(page: Path) -> None:
    text = text_in(page)
    if is_page(text) and not text.startswith(STALE):
        write_whole(page, f"{STALE}\n\n{text}")


def _above(page: Path) -> list[Path]:
    """Returns the pages over several networks of which one has this page, by either path."""
    folders = {Path(path(page.parent)) for path in (os.path.abspath, os.path.realpath)}
    return [
        above
        for folder in folders
        if f"({folder.name}/{PAGE})" in text_in(above := folder.parent / PAGE)
    ]
