"""One run at a time in a folder of checkpoints or results."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import jax

from experiments.errors import UserError


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

    The lock is on the folder itself and ends with the process, however that ends: nothing is left
    behind. Systems without such locks have none.

    Args:
        folder: of what a run writes, and reads again to go on.
        flag: what the user gave it with.

    Raises:
        UserError: if another run has it.
    """
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(ImportError):
            _lock(str(folder), flag, closing)
        yield


def _lock(folder: str, flag: str, closing: contextlib.ExitStack) -> None:
    import fcntl  # Of POSIX systems.

    try:
        os.makedirs(folder, exist_ok=True)
        place = os.open(folder, os.O_RDONLY)
    except OSError:  # Writing to it will tell why not.
        return
    closing.callback(os.close, place)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"another run writes to {folder}; wanted one run a folder, as two undo what the other "
            f"keeps there: wait until it has ended, or give another {flag}."
        ) from None
    except OSError:  # A file system without locks.
        return
