"""Files that are either whole or not there."""

import os
import tempfile
from pathlib import Path

from experiments.errors import UserError


def prepare_folder(folder: Path, flag: str = "--out") -> Path:
    """Makes the folder if needed and checks that it can be written to; before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}; give another {flag}."
        ) from None
    return folder


def write_whole(path: Path, content: str | bytes, flag: str = "--out") -> None:
    """Writes a file under another name and then renames it: readers never see half of it.

    Args:
        path: the file.
        content: text or bytes.
        flag: what the user gave the folder with.
    """
    # A path that the user typed may be no UTF-8: its bytes go through.
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {error.strerror}; free it or change {flag}."
        ) from None
