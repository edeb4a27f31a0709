"""Toy methods on any placement, with the same batches for all, and a comparison of parameters."""

import functools
import inspect

import jax
import numpy as np

from experiments.config import Config
from experiments.methods.method import Method
from experiments.methods.table import METHODS
from experiments.training.devices import Placement, make_placement
from experiments.training.state import Batch
from experiments.training.trainer import Trainer, make_trainer
from tests.experiments.toy import toy_dataset
from tests.trees import quick_jit

BATCH, STEPS = 32, 3

NAMES = ("bn", "cwo", "lcw", "normprop", "vcl")

#: Ghost batches, and parts that the variance constancy loss reads, on any number of devices.
GROUPS = 8

DATA = toy_dataset()


def placement(entry: str, devices: int, mesh: str = "") -> Placement:
    return make_placement(entry, mesh, jax.devices()[:devices])


def trainer(name: str, where: Placement, groups: int = 1, **settings) -> Trainer:
    """Makes the trainer of a method on two layers of eight units, trained by SGD."""
    return trainer_of(METHODS[name].adjusted(Config(sample_size=2)), where, groups, **settings)


def trainer_of(method: Method, where: Placement, groups: int = 1, **settings) -> Trainer:
    """Makes the trainer of a method by name."""
    settings = {"batch_size": BATCH, "epochs": 2, **settings}
    config = Config(depth=2, width=8, ghost_groups=groups, **settings)
    return make_trainer(method, config, DATA, where)


def batches():
    """Draws random rows and their labels, (steps, batch, ...)."""
    rows = np.random.default_rng(0).integers(0, len(DATA.X_train), (STEPS, BATCH))
    return DATA.X_train[rows], DATA.y_train[rows]


def with_keys(X, y) -> Batch:
    """Makes a batch of rows with fixed keys."""
    return Batch(X, y, jax.random.split(jax.random.key(5), len(y)))


@functools.cache
def start(names: tuple[str, ...]):
    """Returns the initial states on one device, by method, from one compiled function."""
    one = placement("jit", 1)
    inits = {name: inspect.unwrap(trainer(name, one).init) for name in names}
    every = quick_jit(lambda *given: {name: init(*given) for name, init in inits.items()})
    return every(np.uint32(3), DATA.X_train)


def train(where: Placement, names: tuple[str, ...] = NAMES, groups: int = GROUPS):
    """Returns the states after the steps, by method; each process feeds its own rows."""
    steps = {name: trainer(name, where, groups).step for name in names}

    def step_all(states, rows):
        batch = with_keys(*rows)
        return {name: step(states[name], batch)[0] for name, step in steps.items()}

    compiled, own = quick_jit(step_all), where.own_rows(BATCH)
    states = put(where, {name: start(NAMES)[name] for name in names})
    for X, y in zip(*batches(), strict=True):
        states = compiled(states, where.feed((X[own], y[own]), BATCH))
    return states


@functools.cache
def on_one_device():
    """Returns the reference states, trained on one device."""
    return train(placement("jit", 1))


def put(where: Placement, state):
    """Places a state of one device, which every process has, on the devices."""
    return state if where.mesh is None else jax.device_put(state, where.state_shardings(state))


def assert_same(got, wanted, rtol=2e-5, atol=2e-6):
    """Asserts equality to float32 rounding: three steps of sums over 32 rows in another order."""
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(wanted), strict=True):
        if jax.numpy.issubdtype(b.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=jax.tree_util.keystr(path))
