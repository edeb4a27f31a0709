"""Kinds of sources for ``--dataset``, told apart by name before anything is read."""

import difflib
from pathlib import Path

from experiments.config import UserError, unknown
from experiments.data.bundled import BUNDLED
from experiments.data.reading import reading

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")
SUFFIXES = (".npz", *TABLES, *ARCHIVES)


def find_source(source: str) -> Path | None:
    """The file or folder of a dataset; None for a bundled name or maybe a TensorFlow dataset.

    Raises:
        UserError: for a file or a folder that does not exist, and for a bundled name misspelt.
    """
    with reading(f"{source[:80]!r}", "wanted a name, a file or a folder: see the command datasets"):
        path = Path(source).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    readable = path.name.lower().endswith(SUFFIXES)
    if source in BUNDLED:
        return None
    if is_folder or (is_file and readable):
        return path
    if readable:
        raise UserError(f"there is no file {source}; give its path from the current folder.")
    if is_file or path.is_absolute() or source.startswith("."):
        raise UserError(
            f"there is no folder {source}, and no reader of files but {', '.join(SUFFIXES)}; give "
            "one of these, or a name that the command datasets lists."
        )
    if difflib.get_close_matches(source.lower(), BUNDLED):
        raise unknown_source(source)
    return None


def unknown_source(source: str) -> UserError:
    """The error for a name of no dataset."""
    sources = ("FILE.npz", "FILE.csv", "a folder or archive of images", "TensorFlow Datasets")
    return unknown("dataset", source, (*BUNDLED, *sources))
