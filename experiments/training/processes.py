"""Several processes, one on each host, as one run."""

import os
from collections.abc import Mapping

import jax

from experiments.errors import UserError

#: What a cluster tells its processes: SLURM's tasks of a step, and a TPU pod's hosts.
SLURM_TASKS, TPU_HOSTS = "SLURM_STEP_NUM_TASKS", "TPU_WORKER_HOSTNAMES"


def join(
    coordinator: str = "", processes: int | None = None, process_id: int | None = None
) -> None:
    """Makes this process one of several; to be called before anything else of JAX.

    On SLURM (``srun -n N``) and TPU pods without arguments; also where JAX finds the others by
    itself and the environment does not say so, with ``coordinator="auto"``.

    Args:
        coordinator: HOST:PORT of process 0, the same for all; "auto"; or nothing.
        processes: how many there are.
        process_id: which one this is.

    Raises:
        UserError: for some of the three arguments without the others.
    """
    if coordinator == "auto" or (not coordinator and is_of_a_cluster(os.environ)):
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


def is_of_a_cluster(environment: Mapping[str, str]) -> bool:
    """Whether the environment is that of one process of several."""
    tasks, hosts = environment.get(SLURM_TASKS, "1"), environment.get(TPU_HOSTS, "")
    return int(tasks) > 1 or "," in hosts


def writes() -> bool:
    """Whether this process writes files and tables: one of all does."""
    return jax.process_index() == 0
