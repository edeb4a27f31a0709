"""Signals that ask a run to end: recorded at once, obeyed when the state is saved."""

import contextlib
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

#: Signals from schedulers before they take a machine away, and from Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: The seconds until a signal that was lost is sent again.
AGAIN = 0.1

#: What a stopped program with a store leaves.
KEPT = "finished runs are kept, and the same command goes on from there"

#: The same of one with --fresh, which trains anew what it finds.
KEPT_FRESH = (
    "finished runs are kept: the same command without --fresh goes on from there, beside runs of "
    "before where none is anew; with it all are trained again"
)

#: The words of the blocks around this place, the innermost last.
_around = [KEPT]


class Stopped(BaseException):
    """A run that a signal ended, after its state was saved if it has checkpoints.

    Like KeyboardInterrupt it is no Exception, which code on its way may catch as an error of its
    own.

    Attributes:
        status: the exit status, 128 + the signal's number.
    """

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.status = 128 + number


@contextlib.contextmanager
def stopping(way_on: str = "", later: bool = False) -> Iterator[Callable[[], None]]:
    """Turns SIGTERM and Ctrl-C inside the block into `Stopped`, which says how to go on.

    Signals reach the main thread alone; elsewhere the block changes nothing.

    Args:
        way_on: what is kept, and what the same command then does; empty for the words of the block
            around this one.
        later: if True, a signal waits for the next call of the function that the block gets: for
            code that must not be left just anywhere.
    """
    noted: list[int] = []
    way_on = way_on or _around[-1]

    def stopped() -> Stopped:
        return Stopped(noted[0], f"stopped by {signal.Signals(noted[0]).name}; {way_on}.")

    def check() -> None:
        if noted:
            raise stopped()

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _around.append(way_on)
    with _sent_again() as watched:

        def stop(number: int, frame: FrameType | None) -> None:
            noted.append(number)
            if not later:
                raise watched(stopped())

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # As in a shell's background.
                signal.signal(number, stop)
        try:
            yield check
        except Exception:
            if not later:
                check()  # Other code may have made this error of `Stopped`.
            raise
        finally:
            _around.pop()
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _sent_again() -> Iterator[Callable[[Stopped], Stopped]]:
    """Gives a function for what is raised: if it is lost in the block, its signal is sent again.

    JAX has many a bare ``except:``, and Python ignores what destructors raise. What is caught and
    dropped is freed, which tells it from what is still on its way through the code that cleans up.
    """
    running, timers, hook = True, list[threading.Timer](), sys.unraisablehook

    def watched(stopped: Stopped) -> Stopped:
        weakref.finalize(stopped, lost, stopped.status - 128).atexit = False
        return stopped

    def lost(number: int) -> None:
        if running:
            timers.append(threading.Timer(AGAIN, os.kill, (os.getpid(), number)))
            timers[-1].daemon = True
            timers[-1].start()

    def silent(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Stopped):
            hook(unraisable)

    sys.unraisablehook = silent
    try:
        yield watched
    finally:
        running = False
        sys.unraisablehook = hook
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def noted_signals() -> Iterator[Callable[[], int]]:
    """Yields a function that returns the number of the signal received, or 0.

    All processes of a distributed run must call it together, and get the same answer. A second
    signal ends the process as usual.
    """
    noted = 0
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        noted = number
        restore()

    def answer() -> int:
        import jax
        import numpy as np
        from jax.experimental import multihost_utils

        if jax.process_count() == 1:
            return noted
        return int(np.max(multihost_utils.process_allgather(np.int32(noted))))

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield answer
    finally:
        restore()
