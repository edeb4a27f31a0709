"""The page of a comparison, and its mark while runs of it are trained again."""

from collections.abc import Sequence
from pathlib import Path

from experiments.runs.files import write_whole
from experiments.runs.processes import writes
from experiments.runs.spec import OFFSET, Spec
from experiments.runs.store import Store

#: The page of a comparison, in its folder.
PAGE = "table.md"

#: The first line of a page whose runs are trained again.
STALE = (
    "**Of earlier runs**, as are tables and pictures beside it: runs were trained again since; "
    "`compare` writes it anew when it ends."
)


def mark(pages: Sequence[Path], store: Store, missing: Sequence[Spec]) -> None:
    """Says in pages that are there that their runs are trained again, if some of these are.

    Args:
        pages: the files.
        store: the store of what was trained.
        missing: the runs, or their trials, that are trained now.
    """
    if not writes():
        return
    trained = {(row.run.method, row.run.seed % OFFSET) for row in store.rows()}
    if not any((spec.method, spec.seed % OFFSET) in trained for spec in missing):
        return
    for page in filter(Path.is_file, pages):
        text = page.read_text(encoding="utf-8", errors="surrogateescape")
        if not text.startswith(STALE):
            write_whole(page, f"{STALE}\n\n{text}")
