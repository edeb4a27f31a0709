"""Trainings that several programs of one folder share: each spec is trained by one of them."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.runs.spec import Spec
from experiments.runs.store import Store
from experiments.training.run import Run

#: The seconds between two looks at what another program trains.
PULSE = 1.0


class Claims:
    """The specs that this program trains; it holds a locked file for each, beside the store.

    A lock ends with its process, however that ends. File systems without locks share nothing.

    Args:
        store: the store of the runs.
        specs: the trainings that are wanted.
    """

    def __init__(self, store: Store, specs: Sequence[Spec]):
        self._store, self._locks = store, dict[Spec, FileLock]()
        self._before = {spec: store.date(spec) for spec in specs}

    def take(self, spec: Spec) -> Run | bool:
        """Returns True if this program is to train the spec, and False if another trains it.

        If another program has stored its run since the claims were made, returns that run, unless
        that program has other versions of JAX or jaxnorm: this one then trains the spec itself.
        """
        lock = FileLock(self._path(spec), timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return False
        except (OSError, NotImplementedError):
            return True
        self._locks[spec] = lock
        if self._store.date(spec) == self._before[spec]:
            return True
        if run := self._store.finished([spec], alone=True).get(spec):
            self.free(spec)
            return run
        return True

    def free(self, spec: Spec) -> None:
        """Gives a spec back: it is stored, or was not trained."""
        if lock := self._locks.pop(spec, None):
            with contextlib.suppress(OSError):
                self._path(spec).unlink()  # While it is locked; another file gets another lock.
            lock.release()

    def free_all(self) -> None:
        """Gives back all specs."""
        for spec in list(self._locks):
            self.free(spec)

    def _path(self, spec: Spec) -> Path:
        return self._store.path.with_name(f".{spec.digest[:16]}.claim")


class Everything(Claims):
    """Claims of a program that shares with no other."""

    def __init__(self) -> None:
        self._locks = {}

    def take(self, spec: Spec) -> bool:
        """Returns True."""
        return True


@contextlib.contextmanager
def claims(store: Store, specs: Sequence[Spec], alone: bool) -> Iterator[Claims]:
    """Yields the claims of a program on a store, which end with the block.

    Args:
        store: the store of the runs.
        specs: the trainings that are wanted.
        alone: if True, the program shares with no other.
    """
    held = Everything() if alone else Claims(store, specs)
    try:
        yield held
    finally:
        held.free_all()


def in_turn(
    specs: Sequence[Spec],
    held: Claims,
    train: Callable[[Spec], Run],
    wait: Callable[[Sequence[Spec]], None],
) -> Iterator[tuple[Spec, Run]]:
    """Yields the runs of specs, trained here one after the other, or elsewhere meanwhile.

    Args:
        specs: the trainings.
        held: the claims.
        train: trains a spec.
        wait: called with the specs that are left when other programs train all of them.
    """
    left = list(specs)
    while left:
        before = len(left)
        for spec in list(left):
            run = held.take(spec)
            if run is False:
                continue
            left.remove(spec)
            yield spec, train(spec) if run is True else run
            held.free(spec)
        if len(left) == before:
            wait(left)
