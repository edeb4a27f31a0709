"""Three steps of SGD by every entry on any number of devices: the same parameters as on one.

All methods train in one program, which is compiled once for each way to place it.
"""

import functools

import jax
import numpy as np
import pytest

from experiments.methods import METHODS, Overrides, adjusted
from experiments.models import ModelSettings
from experiments.training import TrainingSettings, make_placement, make_trainer
from tests.experiments.toy import toy_dataset
from tests.trees import quick_jit

NAMES = ("none", "bn", "cwo", "lcw", "normprop", "vcl")
BATCH, GROUPS, STEPS = 32, 8, 3
DATA = toy_dataset()


def trainer(name, placement, groups=GROUPS, **settings):
    model = ModelSettings(depth=2, width=8, groups=groups)
    recipe = adjusted(METHODS[name], Overrides(sample_size=2))
    settings = {"batch_size": BATCH, "epochs": 2, **settings}
    return make_trainer(recipe, TrainingSettings(model, placement=placement, **settings), DATA)


def placement(entry, devices, mesh=""):
    return make_placement(entry, mesh, jax.devices()[:devices])


@functools.cache
def beginnings(names=NAMES):
    """Initial states, as one host has them; every placement starts from the same."""
    one = placement("jit", 1)
    trainers = {name: trainer(name, one, groups=1) for name in names}
    return {name: t.init(np.uint32(3), DATA.X_train) for name, t in trainers.items()}


def batches():
    rows = np.random.default_rng(0).integers(0, len(DATA.X_train), (STEPS, BATCH))
    return DATA.X_train[rows], DATA.y_train[rows]


def train(where, names=NAMES, **settings):
    """The parameters that three steps lead to, for each method."""
    trainers = {name: trainer(name, where, **settings) for name in names}

    def steps(states, batches):
        def step(states, batch):
            return {n: t.step(states[n], batch)[0] for n, t in trainers.items()}, None

        return jax.lax.scan(step, states, batches)[0]

    return quick_jit(steps)(*where.replicate((beginnings(names), batches())))


@functools.cache
def wanted():
    return train(placement("jit", 1))


def assert_same(got, wanted, rtol=2e-5, atol=2e-6):
    for (path, a), (_, b) in zip(
        jax.tree.leaves_with_path(got), jax.tree.leaves_with_path(wanted), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=jax.tree_util.keystr(path))


WAYS = [(entry, devices) for entry in ("jit", "shard_map", "pmap") for devices in (1, 2, 4, 8)]


@pytest.mark.parametrize(("entry", "devices"), WAYS[1:])
def test_every_way_trains_the_same(entry, devices):
    assert_same(train(placement(entry, devices)), wanted())


def test_kernels_spread_over_their_units():
    got = train(placement("jit", 8, "data=4,model=2"))
    assert_same(got, wanted())
