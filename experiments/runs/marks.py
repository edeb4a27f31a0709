"""The page of a comparison, and its mark while runs that it shows are trained."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments.runs.files import write_whole
from experiments.runs.processes import writes
from experiments.runs.spec import Spec

#: The page of a comparison, in its folder.
PAGE = "table.md"

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
    for page in _with_pages_above(pages):
        text = text_of(page)
        if is_page(text) and not text.startswith(STALE):
            write_whole(page, f"{STALE}\n\n{text}")


def is_page(text: str) -> bool:
    """Returns True for the text of a page that `compare` wrote."""
    return re.search(r"(?m)^- command: `", text) is not None


def text_of(page: Path) -> str:
    """Returns the text of a page; empty if there is none."""
    if not page.is_file():
        return ""
    return page.read_text(encoding="utf-8", errors="surrogateescape")


def _with_pages_above(pages: Iterable[Path]) -> Iterator[Path]:
    for page in pages:
        yield page
        folder = Path(os.path.abspath(page)).parent
        if f"({folder.name}/{PAGE})" in text_of(above := folder.parent / PAGE):
            yield above
