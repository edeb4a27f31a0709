"""Several processes, one per host, as one run: they join, agree, and end together."""

import contextlib
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.config import Config
from experiments.errors import UserError
from experiments.runs.signals import Stopped
from experiments.runs.spec import differences
from experiments.training.run import Diverged

#: Environment variables of clusters: the tasks of a SLURM step, and the hosts of a TPU pod.
SLURM_TASKS, TPU_HOSTS = "SLURM_STEP_NUM_TASKS", "TPU_WORKER_HOSTNAMES"

#: The seconds in which a process may end by itself after another has failed. Process 0 ends last,
#: because JAX aborts processes that lose it.
GRACE, LAST = 1.0, 4.0


@contextlib.contextmanager
def joined(config: Config) -> Iterator[int]:
    """Makes this process one of several, whose number it yields; an error ends all of them.

    Enter it before anything else of JAX. Without ``coordinator`` it joins the processes of SLURM
    (``srun -n N``) or of a TPU pod, or none; with ``coordinator="auto"`` JAX finds the processes.

    Raises:
        UserError: for some of the three flags without the others, or if JAX finds no processes.
    """
    already = jax.distributed.is_initialized()
    host = _join(config)
    if jax.process_count() == 1:
        yield 1
        return
    peers, line = _Peers(host or socket.gethostname()), ""
    try:
        yield jax.process_count()
    except (Stopped, Diverged):  # They end every process by themselves.
        raise
    except BaseException as error:
        if peers.failed.wait(GRACE / 2):  # The error is a consequence, and `_watch` ends this one.
            time.sleep(2 * LAST)
        line = f"process {jax.process_index()}: {str(error) or type(error).__name__}"
        raise
    finally:
        peers.end(line)
        if not line and not already:
            jax.distributed.shutdown()


def _join(config: Config) -> str:
    """Joins the processes that the flags name; returns the host of process 0, or ""."""
    coordinator, count, number = config.coordinator, config.processes, config.process_id
    by_itself = coordinator == "auto"
    if not coordinator and count is None and number is None:
        by_itself = is_in_cluster(os.environ)
        if not by_itself:
            return ""
    host, _, port = coordinator.rpartition(":")
    host, is_port = host.strip("[]"), port.isdecimal() and int(port) < 2**16
    is_number = count is not None and number is not None and number < count
    if not by_itself and not (host and is_port and is_number):
        raise UserError(
            f"got --coordinator {coordinator or 'nothing'}, --processes {count} and "
            f"--process-id {number}; wanted HOST:PORT, a number N and one of 0 to N - 1."
        )
    late = (
        f"not all processes joined at --coordinator {coordinator or 'auto'} within the "
        f"{config.join_timeout:g} seconds of --join-timeout; wanted all with the same coordinator "
        "and number of processes: see that they run, and that this one reaches process 0."
    )
    # At the end of its own limit, JAX aborts the process.
    limit = int(2 * config.join_timeout) + 60
    try:
        with time_limit(config.join_timeout, late):
            if by_itself:
                jax.distributed.initialize(initialization_timeout=limit)
                return ""
            socket.getaddrinfo(host, int(port))
            if number == 0:
                socket.create_server(("", int(port))).close()
            jax.distributed.initialize(coordinator, count, number, initialization_timeout=limit)
    except (ValueError, RuntimeError, OSError) as error:
        reason = str(error).rstrip(".")
        raise UserError(
            f"cannot join the processes at --coordinator {coordinator or 'auto'}: {reason}; wanted "
            "a free HOST:PORT of process 0, or auto on SLURM or a TPU pod."
        ) from error
    return host


def is_in_cluster(environment: Mapping[str, str]) -> bool:
    """Returns True if the environment is that of one process of several."""
    tasks, hosts = environment.get(SLURM_TASKS, "1"), environment.get(TPU_HOSTS, "")
    return int(tasks) > 1 or "," in hosts


def writes() -> bool:
    """Returns True in the one process that writes files and tables."""
    return jax.process_index() == 0


def gathered(text: str) -> list[str]:
    """Returns the texts of all processes, in their order; all must call it together."""
    if jax.process_count() == 1:
        return [text]
    data = np.frombuffer(text.encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.int32(len(data)))
    padded = np.pad(data, (0, lengths.max() - len(data)))
    rows = multihost_utils.process_allgather(padded)
    return [bytes(row[:size]).decode() for row, size in zip(rows, lengths, strict=True)]


def check_same(work: Mapping[str, Any]) -> None:
    """Raises UserError, on every process, if not all are about to do the same work."""
    first, *others = (json.loads(text) for text in gathered(json.dumps(work)))
    for number, other in enumerate(others, 1):
        if apart := differences(first, other, "on process 0", f"on process {number}"):
            raise UserError(
                f"the processes are about to do different work: {apart}. Give all of them the same "
                "flags, data and versions."
            )


@contextlib.contextmanager
def time_limit(seconds: float, line: str) -> Iterator[None]:
    """Ends this process with a line if the block, which may be a call into C++, takes longer."""
    timer = threading.Timer(seconds, _leave, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Peers:
    """Connections of process 0 with each other process, through which one that fails ends all.

    They are made in the background. A network that does not allow them leaves a failure to JAX,
    which ends the other processes within some 100 seconds.

    Args:
        host: the host of process 0.

    Attributes:
        failed: set when another process has failed, or was lost.
    """

    def __init__(self, host: str):
        self.failed = threading.Event()
        self._peers: list[Connection] = []
        self._fails = False
        self._grace = LAST if writes() else GRACE
        key, meet = secrets.token_hex(), self._connect
        if writes():
            self._listener = Listener(("", 0), backlog=jax.process_count(), authkey=key.encode())
            host, meet = f"{host} {self._listener.address[1]} {key}", self._accept
        self._address = gathered(host)[0].split()
        threading.Thread(target=meet, daemon=True).start()

    def end(self, line: str) -> None:
        """Tells the peers that this process fails with a line, or ends well if it is empty."""
        self._fails = bool(line)
        self._send(line)
        if line:  # The peers read it before this process ends.
            time.sleep(self._grace)

    def _send(self, line: str) -> None:
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.send_bytes(line.encode())

    def _connect(self) -> None:
        host, port, key = self._address
        with contextlib.suppress(OSError):
            self._watch(Client((host, int(port)), authkey=key.encode()))

    def _accept(self) -> None:
        while True:
            with contextlib.suppress(AuthenticationError, EOFError, ConnectionError):
                peer = self._listener.accept()
                threading.Thread(target=self._watch, args=(peer,), daemon=True).start()

    def _watch(self, peer: Connection) -> None:
        """Ends this process, and through process 0 all others, when a peer fails."""
        self._peers.append(peer)
        try:
            line = peer.recv_bytes().decode()
        except (EOFError, OSError):
            line = "another process of the run was killed or lost."
        if line:
            self.failed.set()
            self._send(line)
            time.sleep(self._grace)
            if not self._fails:  # By an error of its own.
                _leave(line)


def _leave(line: str) -> None:
    """Ends this process at once, whatever its other threads wait for."""
    print(f"error: {' '.join(line.split())}", file=sys.stderr, flush=True)
    os._exit(2)
