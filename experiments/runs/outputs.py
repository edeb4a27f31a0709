"""Checks before a training that what it writes replaces no data and no file of another origin."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from experiments.data.arrays import holds_arrays
from experiments.data.load import find_source
from experiments.errors import UserError
from experiments.runs.files import text_in

#: The page of a comparison, in its folder.
PAGE = "table.md"

#: The csv files of a comparison, and the names that their lines of names begin with.
TABLES: Mapping[str, Sequence[str]] = {
    "results.csv": ("method", "seed", "epochs"),
    "curves.csv": ("method", "seed", "epoch"),
    "tuning.csv": ("method", "seed"),
}

#: The files that some comparisons write and others do not, and the pictures of all.
OF_SOME = ("tuning.csv", "tuning.png", "rates.png", "masks.png")
PICTURES = ("curves.png", *OF_SOME[1:])

#: The software that a picture names.
SOFTWARE = "jaxnorm"

#: The most bytes of a line of names.
LONGEST_LINE = 1 << 16


def names_of(path: Path) -> list[str]:
    """Returns the names in the first line of a table, also as a spreadsheet saves it."""
    with path.open("rb") as file:
        line = file.readline(LONGEST_LINE).decode("utf-8-sig", errors="replace").strip()
    separator = ";" if line.count(";") > line.count(",") else ","
    return [name.strip('" ') for name in line.split(separator)]


def earlier_note(out: Path, written: Collection[str]) -> list[str]:
    """Returns a line if a folder has files of an earlier comparison that this one does not write.

    Args:
        out: the folder.
        written: the names of the files that this comparison writes.
    """
    names = [name for name in OF_SOME if name not in written and (out / name).is_file()]
    return [f"Of an earlier call, not of these runs: {', '.join(names)}."] * bool(names)


def is_page(text: str) -> bool:
    """Returns True for the text of a page that `compare` wrote."""
    return re.search(r"(?m)^- command: `", text) is not None


def check_own(out: Path) -> None:
    """Raises UserError if a comparison would replace a page or a picture of another origin.

    Pictures of versions that did not sign them are those of a page beside them.
    """
    page = out / PAGE
    is_own = is_page(text_in(page))
    others = [page] * (page.is_file() and not is_own)
    if not is_own:
        others += [
            path for name in PICTURES if (path := out / name).is_file() and not _signed(path)
        ]
    if others:
        raise UserError(
            f"{others[0]} is of no comparison, and would be replaced by it; wanted another --out, "
            "or move that file."
        )


def _signed(picture: Path) -> bool:
    """Returns True if the head of a picture names this software."""
    with picture.open("rb") as file:
        return SOFTWARE.encode() in file.read(512)


def check_outputs(out: Path, dataset: str, folders: Mapping[str, str | Path | None] = {}) -> None:
    """Raises UserError if a training would write over data or tables of another origin.

    Args:
        out: the folder of the reports.
        dataset: the name or path of the data.
        folders: other folders that the training writes to, by their flags.
    """
    data = find_source(dataset)
    for name, expected in TABLES.items():
        path = out / name
        if not path.is_file():
            continue
        if data is not None and data.is_file() and path.samefile(data):
            raise UserError(
                f"--out is {out}, and its {name} is the data, which the reports would replace; "
                "wanted another folder."
            )
        if tuple(names_of(path)[: len(expected)]) != tuple(expected):
            raise UserError(
                f"{path} is no {name} of this command, and would be replaced by it; wanted another "
                "--out, or move that file."
            )
    if data is None or not data.is_dir() or holds_arrays(data):
        return
    for flag, folder in {"--out": out, **folders}.items():
        place = Path(os.path.realpath(folder)) if folder and "://" not in str(folder) else None
        if place is not None and place.is_relative_to(data.resolve()):
            raise UserError(
                f"{flag} is {folder}, in the folder of the data, {dataset}, where what is written "
                "there would be read as data the next time; wanted a folder elsewhere."
            )
