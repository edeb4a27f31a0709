"""Locks: one run at a time in a folder of checkpoints or results."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
from filelock import FileLock, Timeout

from experiments.errors import UserError
from experiments.runs.progress import tell

#: The seconds that a comparison waits for another one, which writes its files.
PATIENCE = 60.0

#: The seconds of these after which it says that it waits.
SILENCE = 1.0

#: The locked file, in the folder; it stays behind, unlocked.
FILE = ".lock"


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Locks a local folder of checkpoints, and makes it if it does not exist.

    The first process of a run holds the lock. Remote folders have no lock.

    Raises:
        UserError: if another run holds the lock.
    """
    if "://" in folder or jax.process_index() > 0:
        yield
        return
    with alone_in(folder, "--checkpoint-dir"):
        yield


def check_free(folder: Path) -> None:
    """Raises UserError if another run holds the lock of a folder, and does not give it back."""
    if (folder / FILE).exists():
        with alone_in(folder, wait=PATIENCE):
            pass


@contextlib.contextmanager
def alone_in(folder: str | Path, flag: str = "--out", wait: float = 0.0) -> Iterator[None]:
    """Locks a local folder against other runs, and makes it if it does not exist.

    The lock ends with the process, however it ends. File systems without locks stay unlocked.

    Args:
        folder: the folder that a run writes to and resumes from.
        flag: the flag that names the folder, for the message.
        wait: the seconds to wait for another run.

    Raises:
        UserError: if another run holds the lock.
    """
    lock = FileLock(Path(folder) / FILE)
    # If the folder cannot be written, whatever writes next says why.
    with contextlib.suppress(OSError, NotImplementedError):
        Path(folder).mkdir(parents=True, exist_ok=True)
        try:
            _acquire(lock, folder, wait)
        except Timeout:
            raise UserError(
                f"another run writes to {folder}, and holds {FILE} there; wanted one at a time, "
                "because two overwrite each other's files: wait until it has ended, and call again "
                f"(finished runs are kept), or give another {flag}."
            ) from None
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, folder: str | Path, wait: float) -> None:
    """Acquires a lock within so many seconds, and says if it waits."""
    try:
        lock.acquire(timeout=min(wait, SILENCE))
    except Timeout:
        if not wait:
            raise
        tell(f"another run writes to {folder}: this one waits, for up to {wait:.0f} s.")
        lock.acquire(timeout=wait)
