"""From specs to finished runs: in this process, in several of the machine, or on a cluster."""

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
from experiments.progress import Say
from experiments.runs.spec import Spec
from experiments.runs.store import Store
from experiments.settings import HERE, Workers
from experiments.training.fit import Run
from experiments.training.history import Checkpointer, NoCheckpoints
from experiments.training.processes import writes

Training = Callable[[Spec, Checkpointer], Run]
Make = Callable[[], Training]

#: The seconds between two looks: at Ctrl-C, and whether the process that waits still lives.
_PULSE = 1.0


def execute(
    specs: Sequence[Spec],
    make: Make,
    store: Store,
    workers: Workers = HERE,
    say: Say = lambda line: None,
) -> Iterator[tuple[Spec, Run]]:
    """Trains specs and keeps each run as it ends: in their order, or with several jobs in any.

    Args:
        specs: what to train, the seeds of one thing after the other.
        make: makes what trains a spec, once a process; it can be pickled.
        store: where the runs are kept.
        workers: how many at once, and where; processes of this machine get their part of the
            processor's cores, and of the GPUs if CUDA_VISIBLE_DEVICES names them.
        say: is told of each process that the system kills.

    Raises:
        UserError: where the last of the processes is killed.
    """
    for spec, run in _trained(specs, make, workers, store, say):
        if writes():
            store.add(spec, run)
        yield spec, run


def _trained(
    specs: Sequence[Spec], make: Make, workers: Workers, store: Store, say: Say
) -> Iterator[tuple[Spec, Run]]:
    jobs = min(workers.jobs, len(specs))
    if workers.ray and specs:
        from experiments.runs.cluster import on_ray

        yield from on_ray(specs, pickle.dumps(make), workers, store.path.parent)
    elif jobs > 1:
        yield from _in_processes(deque(specs), pickle.dumps(make), jobs, say)
    elif specs:
        training = make()
        yield from ((spec, training(spec, NoCheckpoints())) for spec in specs)


def _in_processes(
    waiting: deque[Spec], make: bytes, jobs: int, say: Say
) -> Iterator[tuple[Spec, Run]]:
    """A pool of one process for each job: where one is killed, the others lose nothing."""
    from joblib.externals.loky import ProcessPoolExecutor

    pools = [
        ProcessPoolExecutor(1, initializer=_begin, initargs=(os.getpid(), place, jobs))
        for place in range(jobs)
    ]
    idle, running = list(pools), dict[Future[Run], tuple[Any, Spec]]()
    try:
        while waiting or running:
            while waiting and idle:
                pool, spec = idle.pop(0), waiting.popleft()
                running[pool.submit(_train, make, spec)] = pool, spec
            # Not for ever: a Ctrl-C that another thread gets does not wake this one.
            for future in wait(running, _PULSE, FIRST_COMPLETED).done:
                pool, spec = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    waiting.appendleft(spec)
                    _tell_of_killed(spec, len(idle) + len(running), say)
                else:
                    idle.append(pool)
                    yield spec, future.result()
    finally:
        for pool in pools:
            pool.shutdown(kill_workers=True)


def _tell_of_killed(spec: Spec, left: int, say: Say) -> None:
    """Tells in one sentence of a process that the system killed; raises where none is left."""
    killed = f"the process of {spec} was killed, as the system does where memory is short"
    if not left:
        raise UserError(
            f"{killed}, and it was the last one; what was finished is kept: take fewer --jobs, and "
            "the call goes on from there."
        )
    say(f"{killed}; its run begins again, and {left} of the processes of --jobs go on.")


def _begin(parent: int, place: int, jobs: int) -> None:
    """What a process does before its first training."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The process that waits for it ends it.
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    take_share(place, jobs)


def _end_with(parent: int) -> None:
    """Ends this process after the one that began it, also where that one was killed."""
    while os.getppid() == parent:
        time.sleep(_PULSE)
    os._exit(1)


def _train(make: bytes, spec: Spec) -> Run:
    return made(make)(spec, NoCheckpoints())


@lru_cache(maxsize=1)
def made(make: bytes) -> Training:
    """What trains, with the programs that it has compiled."""
    training: Training = pickle.loads(make)()
    return training


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
