"""The page of a comparison, and its mark while runs that it shows are trained."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.runs.files import write_whole
from experiments.runs.outputs import PAGE, is_page, text_of
from experiments.runs.processes import writes
from experiments.runs.spec import Spec

#: The first line of a page since which runs were trained.
STALE = (
    "**Of earlier runs**, as may be the files beside it: runs were trained since. `compare` writes "
    "all of them anew when it ends."
)


def mark(pages: Iterable[Path], trained: Sequence[Spec]) -> None:
    """Says in pages that are there that runs are trained, if some are.

    The page over several networks, to which the folder of one of them belongs, says so, too.

    Args:
        pages: the files.
        trained: the runs, or their trials.
    """
    if not (trained and writes()):
        return
    for page in pages:
        for each in (page, *_above(page)):
            _mark(each)


def mark_above(page: Path, table: str) -> None:
    """Says in the page over several networks that runs were trained, if it has not this table.

    Args:
        page: the page of one of the networks, which is written anew.
        table: the table of its runs.
    """
    for above in _above(page):
        if table not in text_of(above):
            _mark(above)


def _mark(page: Path) -> None:
    text = text_of(page)
    if is_page(text) and not text.startswith(STALE):
        write_whole(page, f"{STALE}\n\n{text}")


def _above(page: Path) -> list[Path]:
    """Returns the page over several networks of which one has this page, if there is one."""
    folder = Path(os.path.abspath(page)).parent
    above = folder.parent / PAGE
    return [above] if f"({folder.name}/{PAGE})" in text_of(above) else []
