"""A Ray cluster of two nodes, one of which dies: the rows equal those of one process."""

import functools
import os
import signal
import sys
import threading
import time
import types

import numpy as np
import pytest

from experiments.config import Workers
from experiments.errors import UserError
from experiments.papers.training import GridTraining, spec_of
from experiments.runs.comparison import execute
from experiments.runs.signals import KEPT, Stopped
from experiments.runs.store import Store
from tests.experiments.test_runs import GRID, PROTOCOL, run, spec

LONG = PROTOCOL.changed(epochs=8)


class Noted:
    """A slow training that records the epoch and the node at which it begins.

    What it is asked, it answers as the keeper that it was given does.
    """

    def __init__(self, place):
        self.place, self.train = place, GridTraining(LONG, None)

    def __call__(self, spec, keeper):
        self.name, self.keeper = str(spec), keeper
        return self.train(spec, self)

    def begin(self, state):
        import ray

        state, history = self.keeper.begin(state)
        self.node = ray.get_runtime_context().get_node_id()
        self._note(len(history.curve))
        return state, history

    def signal(self):
        time.sleep(0.2)
        return self.keeper.signal()

    def after_epoch(self, state, history, signal):
        self.keeper.after_epoch(state, history, signal)
        self._note(len(history.curve))

    def last(self):
        return self.keeper.last()

    def _note(self, epoch):
        with (self.place / "notes").open("a") as file:
            file.write(f"{self.name};{self.node};{epoch}\n")


def notes(place):
    """Returns (spec, node, epoch) in order of time."""
    path = place / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(name, node, int(epoch)) for name, node, epoch in (line.split(";") for line in lines)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork")  # The nodes are begun from this process.
def test_a_node_that_dies_loses_no_run(tmp_path):
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    make = functools.partial(GridTraining, LONG, None)
    specs = [spec_of(cell, seed, LONG) for cell in GRID.cells for seed in (0, 1)]
    specs = [each.made_of(make().parts(each)) for each in specs]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    doomed = cluster.add_node(num_cpus=1)

    def kill():
        while not any(node == doomed.node_id and e > 2 for _, node, e in notes(tmp_path)):
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        workers = Workers(ray=cluster.address)
        noted = functools.partial(Noted, tmp_path)
        found = dict(execute(specs, noted, Store(tmp_path), workers))
    finally:
        cluster.shutdown()
    killer.join(60)
    lost = {name for name, node, _ in notes(tmp_path) if node == doomed.node_id}
    begun = {name: [e for n, _, e in notes(tmp_path) if n == name] for name in lost}
    # At least one went on from a checkpoint elsewhere: its epochs go back by one at most.
    resumed = [each for each in begun.values() if len(each) > LONG.epochs + 1]
    assert resumed
    assert all(0 not in each[1:] for each in resumed)
    assert not list((tmp_path / "unfinished").iterdir())
    (tmp_path / "one").mkdir()
    alone = dict(execute(specs, make, Store(tmp_path / "one")))
    assert found.keys() == alone.keys()
    for each, mine in alone.items():
        assert Store(tmp_path).finished([each])[each] == found[each]
        np.testing.assert_array_equal(found[each].curve, mine.curve)


def test_without_the_library_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--ray needs ray.*jaxnorm\[ray\]"):
        list(execute([spec()], run, Store(tmp_path), Workers(ray="auto")))


class Compiled(types.ModuleType):
    """A cluster whose waiting is compiled: an exception of Python in it becomes a SystemError."""

    exceptions = types.SimpleNamespace(RayTaskError=LookupError, RayError=OSError)

    def __init__(self, number):
        super().__init__("ray")
        self.number, self.log = number, []

    def init(self, address):
        self.log.append(address)

    def remote(self, **options):
        return lambda function: types.SimpleNamespace(remote=lambda *arguments: arguments[2])

    def wait(self, tasks, timeout=None):
        try:
            os.kill(os.getpid(), self.number)
            time.sleep(0.01)
        except BaseException as error:
            raise SystemError("returned a result with an exception set") from error
        return tasks[:1], tasks[1:]

    def get(self, task):
        return run(0.5)

    def cancel(self, task, force):
        self.log.append(task)

    def shutdown(self):
        self.log.append("shutdown")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_program_of_a_cluster_keeps_what_ended_and_says_how_to_go_on(
    number, tmp_path, monkeypatch
):
    ray, specs, store = Compiled(number), [spec(seed) for seed in range(3)], Store(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(Stopped, match=f"{number.name}; {KEPT}") as stopped:
        list(execute(specs, run, store, Workers(ray="auto")))
    assert stopped.value.status == 128 + number
    assert list(store.finished(specs)) == specs[:1]
    assert ray.log == ["auto", *specs[1:], "shutdown"]
