"""Runs in several processes of this machine; each has its share of the cores and GPUs."""

import contextlib
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from typing import Any

from experiments.errors import UserError
from experiments.runs.progress import Say
from experiments.runs.signals import stopping
from experiments.runs.spec import Spec
from experiments.training.history import Checkpointer, NoCheckpoints
from experiments.training.run import Run

Training = Callable[[Spec, Checkpointer], Run]
Make = Callable[[], Training]

#: The seconds between two checks for Ctrl-C, and for the parent process.
_PULSE = 1.0

#: Silences a process of loky's, which warns of the locks of killed processes after the last line.
_QUIET = "ignore:resource_tracker:UserWarning"


def in_processes(
    specs: Sequence[Spec], make: bytes, jobs: int, say: Say
) -> Iterator[tuple[Spec, Run]]:
    """Trains in a pool of one process per job, so that a killed process affects no other.

    Args:
        specs: the trainings.
        make: a pickled function that returns the function from a spec to its run.
        jobs: the number of processes.
        say: receives a line for each process that the system kills.

    Raises:
        UserError: if the last of the processes is killed.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    _silence()
    waiting = deque(specs)
    pools = [
        ProcessPoolExecutor(1, initializer=_begin, initargs=(os.getpid(), place, jobs))
        for place in range(jobs)
    ]
    idle, running = list(pools), dict[Future[Run], tuple[Any, Spec]]()
    with contextlib.ExitStack() as stack:
        for pool in pools:
            stack.callback(pool.shutdown, kill_workers=True)
        check = stack.enter_context(stopping(later=True))
        while waiting or running:
            check()
            while waiting and idle:
                pool, spec = idle.pop(0), waiting.popleft()
                running[pool.submit(_train, make, spec)] = pool, spec
            # With a timeout, because a Ctrl-C in another thread does not wake this one.
            for future in wait(running, _PULSE, FIRST_COMPLETED).done:
                pool, spec = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    waiting.appendleft(spec)
                    _report_killed(spec, len(idle) + len(running), say)
                else:
                    idle.append(pool)
                    yield spec, future.result()


def _silence() -> None:
    """Adds `_QUIET` to the filters of the processes that begin from now on."""
    filters = os.environ.get("PYTHONWARNINGS", "")
    if _QUIET not in filters:
        os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (filters, _QUIET)))


def _report_killed(spec: Spec, left: int, say: Say) -> None:
    """Reports a process that the system killed; raises UserError if none is left."""
    killed = f"the process of {spec} was killed, as the system does when memory is short"
    if not left:
        raise UserError(
            f"{killed}, and it was the last one; finished runs are kept: take fewer --jobs, and "
            "the same call goes on from there."
        )
    say(f"{killed}; its run begins again, and {left} of the processes of --jobs go on.")


def _begin(parent: int, place: int, jobs: int) -> None:
    """Prepares a process before its first training."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent process ends it.
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    take_share(place, jobs)


def _end_with(parent: int) -> None:
    """Ends this process after its parent, even if the parent was killed."""
    while os.getppid() == parent:
        time.sleep(_PULSE)
    os._exit(1)


def _train(make: bytes, spec: Spec) -> Run:
    return made(make)(spec, NoCheckpoints())


@lru_cache(maxsize=1)
def made(make: bytes) -> Training:
    """Returns the function that trains; cached with the programs that it has compiled."""
    training: Training = pickle.loads(make)()
    return training


def take_share(place: int, jobs: int) -> None:
    """Gives this process its share of the cores and GPUs; call it before JAX starts."""
    # Without affinities (macOS, Windows), the system shares the cores.
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, share(cores, place, jobs))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(share(visible.split(","), place, jobs))


def share(items: Sequence[Any], place: int, jobs: int) -> list[Any]:
    """Returns every ``jobs``-th item from ``place`` on; with fewer items than jobs, one each."""
    return list(items[place::jobs]) or [items[place % len(items)]]
