"""What may stand after ``--dataset``, told apart before anything that takes time is imported."""

import difflib
from pathlib import Path

from experiments.errors import UserError, unknown
from experiments.names import BUNDLED
from experiments.reading import reading

#: The files whose split the seed may decide, and those of images.
SPLIT_BY_SEED = (".npz", ".csv")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


def check_source(source: str) -> None:
    """Raises UserError for a file or a folder that is not there, and for a bundled name misspelt.

    What passes is a bundled name, a file, a folder, or maybe the name of a TensorFlow dataset.
    """
    path = Path(source)
    with reading(f"{source[:80]!r}", "wanted a name, a file or a folder: see the command datasets"):
        is_folder, is_file = path.is_dir(), path.is_file()
    if source in BUNDLED or is_folder:
        return
    if source.endswith((*SPLIT_BY_SEED, *TARS)):
        if not is_file:
            raise UserError(f"there is no file {source}; give its path from the current folder.")
    elif path.is_absolute() or source.startswith("."):
        raise UserError(
            f"there is no folder {source}, and no reader but for .npz, .csv, tar and folders; give "
            "one of these, or a name that the command datasets lists."
        )
    elif difflib.get_close_matches(source.lower(), BUNDLED):
        raise unknown_source(source)


def unknown_source(source: str) -> UserError:
    """The error for what is no dataset."""
    sources = ("FILE.npz", "FILE.csv", "a folder or tar of images", "TensorFlow Datasets")
    return unknown("dataset", source, (*BUNDLED, *sources))
