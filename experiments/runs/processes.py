"""Several processes, one per host, as one run."""

import os
from collections.abc import Mapping

import jax

from experiments.errors import UserError

#: Environment variables of clusters: the tasks of a SLURM step, and the hosts of a TPU pod.
SLURM_TASKS, TPU_HOSTS = "SLURM_STEP_NUM_TASKS", "TPU_WORKER_HOSTNAMES"


def join(
    coordinator: str = "", processes: int | None = None, process_id: int | None = None
) -> None:
    """Makes this process one of several; call it before anything else of JAX.

    Without arguments it joins the processes of SLURM (``srun -n N``) or of a TPU pod. With
    ``coordinator="auto"`` JAX finds the processes.

    Args:
        coordinator: HOST:PORT of process 0, the same for all; "auto"; or empty.
        processes: the number of processes.
        process_id: the index of this process.

    Raises:
        UserError: for some of the three arguments without the others.
    """
    if coordinator == "auto" or (not coordinator and is_in_cluster(os.environ)):
        jax.distributed.initialize()
        return
    if not coordinator and processes is None and process_id is None:
        return
    known = processes is not None and process_id is not None and 0 <= process_id < processes
    if ":" not in coordinator or not known:
        raise UserError(
            f"got --coordinator {coordinator or 'nothing'}, --processes {processes} and "
            f"--process-id {process_id}; wanted HOST:PORT, a number N and one of 0 to N - 1."
        )
    jax.distributed.initialize(coordinator, processes, process_id)


def is_in_cluster(environment: Mapping[str, str]) -> bool:
    """Returns True if the environment is that of one process of several."""
    tasks, hosts = environment.get(SLURM_TASKS, "1"), environment.get(TPU_HOSTS, "")
    return int(tasks) > 1 or "," in hosts


def writes() -> bool:
    """Returns True in the one process that writes files and tables."""
    return jax.process_index() == 0
