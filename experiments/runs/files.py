"""Files that are written completely or not at all."""

import contextlib
import os
import shlex
import tempfile
from pathlib import Path

from experiments.errors import UserError

#: The bytes that a folder of reports takes at least.
ROOM = 1 << 16


def as_argument(path: Path) -> str:
    """Returns a path as it is typed in a shell, where one that begins like a flag is none."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def prepare_folder(folder: Path, flag: str = "--out") -> Path:
    """Makes the folder if needed, and checks that it can be filled, before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
            file.flush()
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}; give another {flag}."
        ) from None
    return folder


def text_in(path: Path) -> str:
    """Returns the text of a file that `write_whole` wrote; empty if there is none."""
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write_whole(path: Path, content: str | bytes, flag: str = "--out") -> None:
    """Writes a file under another name and then renames it, so that readers never see a part.

    Args:
        path: the file.
        content: text or bytes.
        flag: the flag that names the folder, for the message.
    """
    # Text may contain a path that is not valid UTF-8.
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {error.strerror}; wanted a folder that is there, on a disk with "
            f"space: free it or change {flag}."
        ) from None
