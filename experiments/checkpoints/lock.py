"""One run at a time in a folder of checkpoints or results."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
from filelock import FileLock, Timeout

from experiments.errors import UserError

#: The file that is locked, in the folder; it stays behind, and is nobody's.
FILE = ".lock"


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keeps other runs out of a local folder of checkpoints, which is made if there is none.

    Of the processes of one run the first holds it. Folders elsewhere have no lock.

    Raises:
        UserError: if another run has it.
    """
    if "://" in folder or jax.process_index() > 0:
        yield
        return
    with alone_in(folder, "--checkpoint-dir"):
        yield


@contextlib.contextmanager
def alone_in(folder: str | Path, flag: str = "--out") -> Iterator[None]:
    """Keeps other runs out of a local folder, which is made if it does not exist.

    The lock ends with the process, however that ends. File systems without locks have none.

    Args:
        folder: of what a run writes, and reads again to go on.
        flag: what the user gave it with.

    Raises:
        UserError: if another run has it.
    """
    lock = FileLock(Path(folder) / FILE, timeout=0)
    # Where there is no writing, whatever writes next tells why.
    with contextlib.suppress(OSError, NotImplementedError):
        Path(folder).mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"another run writes to {folder}; wanted one run a folder, as two undo what the "
                f"other keeps there: wait until it has ended, or give another {flag}."
            ) from None
    try:
        yield
    finally:
        lock.release()
