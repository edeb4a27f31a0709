"""Three steps of SGD on any number of devices, in every parallelism, equal those on one device.

All methods train in one program, compiled once per placement.
"""

import logging

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from experiments.training.fit import fit
from tests.experiments.parallel import (
    DATA,
    GROUPS,
    NAMES,
    STEPS,
    assert_same,
    on_one_device,
    placement,
    start,
    train,
    trainer,
)

#: Each test here takes many seconds.
pytestmark = pytest.mark.slow


#: Beside jit on one device: on one, on fewer than there are groups, and on as many.
WAYS = [("jit", GROUPS), ("shard_map", 1)]
WAYS += [(entry, devices) for entry in ("shard_map", "pmap") for devices in (4, GROUPS)]


@pytest.mark.parametrize(("entry", "devices"), WAYS)
def test_every_way_trains_the_same(entry, devices):
    # On as many devices as there are groups, those on their own rows need no groups.
    groups = 1 if devices == GROUPS and entry != "jit" else GROUPS
    assert_same(train(placement(entry, devices), groups=groups), on_one_device())


def test_what_is_compared_moves():
    """Noise, betas and running statistics change, so that the other tests compare them."""
    for name, state in on_one_device().items():
        for before, after in zip(
            jax.tree.leaves(start(NAMES)[name].params), jax.tree.leaves(state.params), strict=True
        ):
            assert not np.allclose(before, after, rtol=0, atol=1e-5), name
    memory = jax.tree.leaves(on_one_device()["cwo"].optimizer_state)
    counts = [leaf for leaf in memory if leaf.dtype == np.int32]
    assert counts
    assert all(count == STEPS for count in counts)


def test_units_are_spread_over_the_model_axis():
    got = train(placement("jit", 8, "data=4,model=2"))
    assert_same(got, on_one_device())
    state = got["cwo"]
    scaled = state.params["blocks"][0]["linear"]["kernel"]
    assert scaled.kernel.sharding.spec == P(None, "model")
    assert scaled.scale.sharding.spec == P("model")
    trace = [x for x in jax.tree.leaves(state.optimizer_state) if x.shape == (8, 8)]
    assert [x.sharding.spec for x in trace] == [P(None, "model")]
    assert state.params["head"]["kernel"].sharding.spec == P()  # Three classes.


def test_one_group_under_jit_is_the_whole_batch_on_any_devices():
    one = train(placement("jit", 1), ("bn",), groups=1)
    assert_same(train(placement("jit", 8), ("bn",), groups=1), one)
    statistics = [states["bn"].model_state for states in (one, on_one_device())]
    leaves = [np.concatenate(jax.tree.leaves(each)) for each in statistics]
    assert not np.allclose(*leaves, rtol=1e-3)


def test_nothing_compiles_in_a_second_epoch_or_run(caplog):
    subject = trainer("cwo", placement("jit", 8, "data=4,model=2"))
    fit(subject, DATA, 0)
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, logger="jax"):
        run = fit(subject, DATA, 1)
    assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
    assert (subject.init.compilations, subject.epoch.compilations) == (1, 1)
    before = run.state
    subject.epoch(before, *subject.placement.replicate(DATA[:2]))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before.params))
