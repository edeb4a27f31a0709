"""One run at a time in a folder of checkpoints."""

import contextlib
import os
from collections.abc import Iterator

import jax

from experiments.errors import UserError


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keeps other runs out of a local folder, which is made if it does not exist.

    The lock is on the folder itself and ends with the process, however that ends: nothing is left
    behind. Of the processes of one run the first holds it. Folders elsewhere, and systems without
    such locks, have none.

    Raises:
        UserError: if another run has it.
    """
    if "://" in folder or jax.process_index() > 0:
        yield
        return
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(ImportError):
            _lock(folder, closing)
        yield


def _lock(folder: str, closing: contextlib.ExitStack) -> None:
    import fcntl  # Of POSIX systems.

    try:
        os.makedirs(folder, exist_ok=True)
        place = os.open(folder, os.O_RDONLY)
    except OSError:  # Writing checkpoints will tell why not.
        return
    closing.callback(os.close, place)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"another run writes its checkpoints to {folder}; wanted one run a folder, as two "
            "damage each other's: wait until it has ended, or give another --checkpoint-dir."
        ) from None
    except OSError:  # A file system without locks.
        return
