"""Communication between devices in the command line's training step."""

import inspect
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from experiments.methods.constrained import ClippedByLayer
from experiments.methods.table import METHODS
from experiments.training.epoch import batch_at
from experiments.training.state import Batch
from jaxnorm import effective
from tests.devices import collectives, traffic
from tests.experiments.parallel import BATCH, DATA, placement, trainer, trainer_of

FLOAT = 4  # bytes
METRICS = 2 * FLOAT
DEVICES, LAYERS = 8, 2


def state_shapes(subject):
    return jax.eval_shape(inspect.unwrap(subject.init), np.uint32(0), DATA.X_train)


def on(shardings, shapes):
    def put(shape, sharding):
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    return jax.tree.map(put, shapes, shardings)


def batch_shapes(rows=BATCH):
    return jax.ShapeDtypeStruct((rows, 6), jnp.float32), jax.ShapeDtypeStruct((rows,), jnp.int32)


def keyed_shapes(rows=BATCH):
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), rows))
    return Batch(*batch_shapes(rows), keys)


def size(tree):
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return FLOAT * sum(leaf.size for leaf in leaves)


#: Of what works on kernels alone, in the default run, what has most parts: cwo.
KERNELS = [pytest.param(name, marks=pytest.mark.slow) for name in ("lcw", "wn", "normprop")]


@pytest.mark.kept("vcl")
@pytest.mark.parametrize("method", ["none", "bn", "cwo", "vcl", *KERNELS])
def test_one_all_reduce_a_step(method):
    """It has the bytes of the gradients of plain kernels, running statistics and metrics."""
    where = placement("jit", DEVICES)
    subject = trainer(method, where, groups=DEVICES)
    state = state_shapes(subject)
    sent = traffic(subject.step, on(where.state_shardings(state), state), keyed_shapes())
    assert sent.operations == ["all-reduce"]
    plain = jax.eval_shape(effective, state.params)
    assert sent.bytes == size(plain) + size(state.model_state) + METRICS


def test_the_whole_batch_s_statistics_cost_three_all_reduces_a_layer():
    """The shift, the sums and their gradients are reduced separately."""
    where = placement("jit", DEVICES)
    subject = trainer("bn", where)
    state = state_shapes(subject)
    sent = traffic(subject.step, on(where.state_shardings(state), state), keyed_shapes())
    assert sent.operations == ["all-reduce"] * (1 + 3 * LAYERS)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bn", "cwo", "vcl", *KERNELS])
def test_one_all_reduce_a_step_of_shard_map(method):
    """It has the bytes of the gradients of raw parameters, scales included."""
    where = placement("shard_map", DEVICES)
    subject = trainer(method, where)
    state = state_shapes(subject)
    sent = traffic(subject.step, on(where.state_shardings(state), state), keyed_shapes())
    assert sent.operations == ["all-reduce"]
    assert sent.bytes == size(state.params) + size(state.model_state) + METRICS


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["jit", "shard_map"])
@pytest.mark.parametrize("method", ["none", "bn", "cwo", "vcl"])
def test_bytes_a_device_do_not_depend_on_the_devices(method, entry):
    """The number of rows per device is fixed."""
    found = []
    for devices in (2, 4, 8):
        where, rows = placement(entry, devices), 4 * devices
        subject = trainer(method, where, groups=devices, batch_size=rows)
        state = state_shapes(subject)
        sent = traffic(subject.step, on(where.state_shardings(state), state), keyed_shapes(rows))
        found.append(sent.bytes)
    assert found[0] == found[1] == found[2] > 0


def test_taking_a_batch_out_of_the_data_sends_nothing():
    """Every device has all rows and takes its own."""
    where = placement("jit", DEVICES)
    subject = trainer("none", where)
    state, everywhere = state_shapes(subject), NamedSharding(where.mesh, P())
    data = [on(everywhere, x) for x in batch_shapes(len(DATA.X_train))]
    order = jax.ShapeDtypeStruct((2, BATCH), jnp.int32)
    state = on(where.state_shardings(state), state)

    def step(state, *rows):
        return subject.step(state, batch_at(state, *rows))

    assert collectives(step, state, *data, order, jnp.int32(0)) == ["all-reduce"]


def all_reduces_with_a_kernel_split_along_its_fan_in(method):
    """Counts all-reduces if the second layer's 8 x 8 kernel and its optimizer state are sharded."""
    mesh = placement("jit", DEVICES, "model=8").mesh
    subject = trainer_of(method, placement("jit", 1))
    state = state_shapes(subject)

    def sharding(leaf):
        return NamedSharding(mesh, P("model") if leaf.shape == (8, 8) else P())

    shardings = jax.tree.map(sharding, state)

    def step(state, batch):
        state, metrics = subject.step(state, batch)
        return jax.lax.with_sharding_constraint(state, shardings), metrics

    return collectives(step, on(shardings, state), keyed_shapes()).count("all-reduce")


@pytest.mark.slow
def test_a_kernel_split_along_its_fan_in_costs_one_all_reduce_or_two():
    """cwo: the sum, the squares and the scale's gradient, in one.

    With them goes the gradient's norm, which every step measures, and which is an all-reduce of its
    own without a method. Clipping takes one more, the layer's norm. lcw and wn: a sum over the
    fan-in forward, and one backward.
    """
    count = all_reduces_with_a_kernel_split_along_its_fan_in
    parts = [part for part in METHODS["cwo"].parts if not isinstance(part, ClippedByLayer)]
    unclipped = count(replace(METHODS["cwo"], parts=tuple(parts)))
    plain = count(METHODS["none"])
    assert [count(METHODS[name]) - plain for name in ("lcw", "wn")] == [2, 2]
    assert unclipped - (plain - 1) == 1
    assert count(METHODS["cwo"]) - unclipped == 1
