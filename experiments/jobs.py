"""Trainings in several processes, each with its share of the machine."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from experiments.errors import UserError
from experiments.training.fit import Run

#: What is trained and its seed.
Task = tuple[Any, int]
Training = Callable[[Any, int], Run]


def finished(
    tasks: Sequence[Task], make_training: Callable[[], Training], jobs: int
) -> Iterator[tuple[Task, Run]]:
    """The runs as they end: in order in this process, or by several at once in whatever order.

    Args:
        tasks: the seeds of one thing after the other.
        make_training: makes what trains a task, once a process; it can be pickled.
        jobs: how many at once; each gets its part of the processor's cores, and of the GPUs if
            CUDA_VISIBLE_DEVICES names them.

    Raises:
        UserError: for less than one job, and where a process is killed.
    """
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}; it must be 1 or more.")
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        training = make_training()
        yield from ((task, training(*task)) for task in tasks)
        return
    with _processes(jobs, make_training) as submit, _unharmed(jobs):
        with _without_interrupts():
            futures = {submit(task): task for task in tasks}
        yield from ((futures[future], future.result()) for future in as_completed(futures))


@contextlib.contextmanager
def _processes(
    jobs: int, make_training: Callable[[], Training]
) -> Iterator[Callable[[Task], Future[Run]]]:
    """Processes that end with what is in the ``with`` block, and with this process."""
    # Spawned: a process that runs JAX cannot be forked.
    context = multiprocessing.get_context("spawn")
    places = context.SimpleQueue()
    for place in range(jobs):
        places.put(place)
    # Nothing is sent: it is closed when nobody waits for the runs any more, also by a kill.
    lifeline, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, context, _begin, (places, lifeline, jobs, make_training))
    try:
        yield lambda task: pool.submit(_train, task)
    except BaseException:
        held.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        held.close()


@contextlib.contextmanager
def _unharmed(jobs: int) -> Iterator[None]:
    """Tells of a process that something else has ended."""
    try:
        yield
    except BrokenProcessPool:
        raise UserError(
            f"one of the {jobs} processes of --jobs was killed, as the system does where memory is "
            "short; what was finished is kept: take fewer --jobs (and --resume, in compare)."
        ) from None


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that begin within it get no Ctrl-C, nor its tracebacks: this one ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_training: Training | None = None


def _begin(places: Any, lifeline: Any, jobs: int, make_training: Callable[[], Training]) -> None:
    """What a process does before its first training."""
    global _training
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    take_share(places.get(), jobs)
    _training = make_training()


def _end_with(lifeline: Any) -> None:
    """Ends this process when the other end of a pipe is closed."""
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def _train(task: Task) -> Run:
    assert _training is not None
    return _training(*task)


def take_share(place: int, jobs: int) -> None:
    """Gives this process every ``jobs``-th core and GPU, from ``place`` on; before JAX starts."""
    # Where there is no such thing as an affinity, the processes share the cores as they come.
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, share(cores, place, jobs))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(share(visible.split(","), place, jobs))


def share(of: Sequence[Any], place: int, jobs: int) -> list[Any]:
    """Every ``jobs``-th, from ``place`` on; with fewer than jobs, several processes share one."""
    return list(of[place::jobs]) or [of[place % len(of)]]
