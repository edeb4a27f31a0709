"""Runs as tasks of a Ray cluster; a run whose node dies resumes on another node."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.config import Workers
from experiments.errors import UserError, library
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.jobs import made
from experiments.runs.keeper import keeping
from experiments.runs.processes import time_limit
from experiments.runs.shared import PULSE
from experiments.runs.signals import KEPT, stopping
from experiments.runs.spec import Spec
from experiments.training.run import Run

#: The folder of unfinished runs' checkpoints, beside the store.
UNFINISHED = "unfinished"

#: The number of restarts of a run whose node died, or whose process was killed.
RETRIES = 5


def on_ray(
    specs: Sequence[Spec], make: bytes, workers: Workers, folder: Path
) -> Iterator[tuple[Spec, Run]]:
    """Yields runs as they end on a Ray cluster; this process stores them and shows the logs.

    Args:
        specs: the trainings.
        make: a pickled function that returns the function from a spec to its run.
        workers: the cluster's address, and the resources of a run.
        folder: the folder of checkpoints, on a disk that all nodes see.

    Raises:
        UserError: if no cluster answers, or a run is lost after all restarts.
    """
    ray = library("ray", "--ray", "ray", "--jobs needs nothing")
    lost = f"--ray {workers.ray} finds no cluster"
    within = f"within the {workers.ray_timeout:g} seconds of --ray-timeout; wanted a running one"
    try:
        with time_limit(workers.ray_timeout, f"{lost} {within}: ray start shows its address."):
            ray.init(address=workers.ray)
    except ConnectionError as error:
        raise UserError(f"{lost}: {error}.") from None
    # In the place of Ray's own handler, which prints frames of C++. An exception in Ray's compiled
    # code would become a SystemError, so a signal waits until that returns.
    with stopping(KEPT, later=True) as check:
        yield from _tasks(ray, specs, make, workers, folder, check)


def _tasks(
    ray: Any,
    specs: Sequence[Spec],
    make: bytes,
    workers: Workers,
    folder: Path,
    check: Callable[[], None],
) -> Iterator[tuple[Spec, Run]]:
    """Yields the runs of a cluster that answers, and leaves it at the end."""
    task = ray.remote(num_cpus=workers.ray_cpus, num_gpus=workers.ray_gpus, max_retries=RETRIES)(
        _train
    )
    places = {spec: (folder / UNFINISHED / spec.digest).absolute() for spec in specs}
    running = {task.remote(os.getcwd(), make, spec, places[spec]): spec for spec in specs}
    try:
        while running:
            for each in ray.wait(list(running), timeout=PULSE)[0]:
                spec = running.pop(each)
                yield spec, ray.get(each)
                shutil.rmtree(places[spec], ignore_errors=True)
            check()
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise UserError(
            f"a run was lost {RETRIES + 1} times on the cluster ({type(error).__name__}); finished "
            "runs are kept, and the same call goes on from there: give each run more memory by "
            "--ray-cpus."
        ) from None
    finally:
        for each in running:
            ray.cancel(each, force=True)
        ray.shutdown()


def _train(here: str, make: bytes, spec: Spec, place: Path) -> Run:
    """Trains a spec on a node, with paths relative to the folder of the command."""
    os.chdir(here)
    epochs = dict(spec.changes).get("epochs", spec.config.epochs)
    settings = CheckpointSettings(str(place), keep=1, resume=place.exists())
    with keeping(settings, {}, epochs) as keeper:
        return made(make)(spec, keeper)
