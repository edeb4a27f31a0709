"""Gradient accumulation, bfloat16, random keys, and microbatches."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from experiments.config import Config
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.training.devices import make_placement
from experiments.training.parallel import Groups, average, batch_groups, own_keys, shared_keys
from experiments.training.step import microbatches
from tests.experiments.parallel import (
    DATA,
    assert_same,
    batches,
    placement,
    put,
    start,
    trainer,
    with_keys,
)
from tests.trees import quick_jit

ONE = placement("jit", 1)
NAMES = ("bn", "cwo")


@functools.cache
def one_step(name, where=ONE, **settings):
    """Returns the states before and after one step, and its metrics."""
    state, (X, y) = start(NAMES)[name], batches()
    step = trainer(name, where, **settings).step
    compiled = quick_jit(lambda state, X, y: step(state, with_keys(X, y)))
    return state, *compiled(put(where, state), *where.replicate((X[0], y[0])))


@pytest.mark.slow
def test_microbatches_make_the_same_step():
    """If rows are independent, the mean of the microbatches' gradients is the batch's."""
    _, whole, metrics = one_step("cwo")
    _, parts, mean = one_step("cwo", accumulate=4)
    assert_same((parts, mean), (whole, metrics))
    counts = [x for x in jax.tree.leaves(parts.optimizer_state) if x.dtype == jnp.int32]
    assert counts
    assert all(count == 1 for count in counts)  # The schedule and the noise count whole batches.


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["jit", "shard_map"])
def test_microbatches_are_the_same_on_any_devices(entry):
    """Batch normalization depends on which rows are together."""
    wanted = one_step("bn", accumulate=2, groups=4)[1]
    got = one_step("bn", placement(entry, 4), accumulate=2, groups=4)[1]
    assert_same(got, wanted)


@pytest.mark.slow
def test_every_microbatch_moves_running_statistics():
    state, after, _ = one_step("bn", accumulate=2)
    X = batches()[0][0]
    block = state.params["blocks"][0]["linear"]["kernel"]
    expected = np.zeros(8)
    for part in microbatches(jnp.asarray(X), 2):
        expected = 0.9 * expected + 0.1 * (np.asarray(part) @ np.asarray(block)).mean(0)
    kept = after.model_state["blocks"][0]["norm"]["mean"]
    np.testing.assert_allclose(kept, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.kept("bn")
@pytest.mark.parametrize("name", ["cwo", "bn"])
def test_bfloat16_computes_and_float32_keeps(name):
    state, after, metrics = one_step(name, dtype="bfloat16")
    _, wanted, exact = one_step(name)
    for leaf, old in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        assert leaf.dtype == old.dtype
    assert metrics.loss.dtype == jnp.float32
    # Eight bits of precision, in a few layers: the same loss to a percent, and not to a millionth.
    assert float(metrics.loss) == pytest.approx(float(exact.loss), rel=2e-2)
    assert float(metrics.loss) != pytest.approx(float(exact.loss), rel=1e-6)
    moved, same = (
        jnp.concatenate([(a - b).ravel() for a, b in zip(*map(jax.tree.leaves, pair), strict=True)])
        for pair in ((after.params, state.params), (wanted.params, state.params))
    )
    assert jnp.linalg.norm(moved - same) < 0.1 * jnp.linalg.norm(same)


def test_matrix_products_are_of_bfloat16():
    subject = trainer("cwo", ONE, dtype="bfloat16")
    state = jax.eval_shape(inspect.unwrap(subject.init), np.uint32(0), DATA.X_train)
    X, y = batches()
    jaxpr = str(jax.make_jaxpr(subject.step)(state, with_keys(X[0], y[0])))
    products = [line for line in jaxpr.splitlines() if " dot_general[" in line]
    assert products
    assert all(":bf16[" in line for line in products)


def test_devices_drop_different_units_and_keep_one_random_state():
    tree = {"key": jax.random.key(0), "count": jnp.uint32(3), "mean": jnp.zeros(())}

    def draw(rows):
        own = own_keys({**tree, "mean": rows.mean()}, "data")
        bits = jax.random.bits(own["key"], (1,))
        return bits, shared_keys(average(own, "data"), tree, "data")

    where = placement("shard_map", 8)
    mapped = jax.shard_map(
        draw, mesh=where.mesh, in_specs=P("data"), out_specs=(P("data"), P()), check_vma=False
    )
    bits, kept = jax.jit(mapped)(jnp.arange(8.0))
    assert len(np.unique(bits)) == 8
    assert jax.random.key_data(kept["key"]).tolist() == jax.random.key_data(tree["key"]).tolist()
    assert (kept["count"], kept["mean"]) == (3, 3.5)


def test_groups_inside_a_step():
    def groups(entry, devices, wanted, method="bn"):
        config = Config(batch_size=64, ghost_groups=wanted)
        return batch_groups(METHODS[method], config, placement(entry, devices))

    assert groups("jit", 1, 1) == Groups(1, 1)
    assert groups("jit", 8, 1) == Groups(1, 8)
    assert groups("jit", 4, 8) == Groups(8, 8)
    assert groups("shard_map", 8, 1) == Groups(1, 1)
    assert groups("pmap", 4, 8) == Groups(2, 2)
    # Ten rows each are not to be had of eight devices: four parts, of two devices each.
    assert groups("jit", 8, 1, "vcl") == Groups(1, 4)


WRONG = {
    "axis": (("jit", "model=2,rows=4"), "no mesh axis 'rows'"),
    "product": (("jit", "data=4,model=3"), "is for 12 devices and there are 8"),
    "twice": (("jit", "data=4,data=2"), "wanted each axis once"),
    "zero": (("jit", "data=0"), "wanted each axis once"),
    "rows only": (("shard_map", "data=4,model=2"), "shard_map spreads rows only"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_meshes(name):
    given, message = WRONG[name]
    with pytest.raises(UserError, match=message):
        make_placement(*given)


@pytest.mark.parametrize(
    ("method", "entry", "batch", "accumulate", "groups", "message"),
    [
        ("none", "jit", 66, 1, 1, "want a multiple of 8: take --batch-size 64 or 72"),
        ("bn", "jit", 72, 2, 1, "want a multiple of 16: take --batch-size 64 or 80"),
        ("bn", "shard_map", 64, 1, 4, "take a multiple of 8, or --parallel jit"),
        ("vcl", "jit", 8, 1, 1, "reads 10 rows of each part .* has 8; take a larger"),
    ],
)
def test_batches_that_cannot_be_cut(method, entry, batch, accumulate, groups, message):
    config = Config(batch_size=batch, accumulate=accumulate, ghost_groups=groups)
    with pytest.raises(UserError, match=message):
        batch_groups(METHODS[method], config, placement(entry, 8))
