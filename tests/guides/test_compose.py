"""The table of docs/guides/compose.md: each of its cells is what is seen."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxnorm as jn
from tests.guides.composition import (
    DRIFT,
    PARAMS,
    RATE,
    STACKED,
    STDDEV,
    X,
    apply,
    clean_as_without,
    constrained,
    drift,
    fixed,
    in_bfloat16,
    kinds,
    loss_of,
    matrices,
    noisy_loss,
    on_sphere,
    rematted,
    scanned,
    train,
)
from tests.trees import largest_difference

pytestmark = pytest.mark.usefixtures("standard_promotion")

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "compose.md").read_text()
TABLE = [
    [cell.replace("`", "").strip() for cell in line.strip("|").split("|")]
    for line in re.search(r"^\| with .*?\n\n", GUIDE, re.M | re.S)[0].strip().splitlines()  # type: ignore[index]  # it is there
]
COLUMNS = TABLE[0][1:]
CELLS = [
    (row[0], column, said)
    for row in TABLE[2:]
    for column, said in zip(COLUMNS, row[1:], strict=True)
]

PARTS = {"matrix": optax.sgd(RATE), "vector": optax.adam(1e-2)}


def inject(make: Any) -> optax.GradientTransformation:
    """A transformation whose learning rate is a schedule that can be read and set."""
    return optax.inject_hyperparams(make)(learning_rate=optax.linear_schedule(RATE, 0.1, 9))


#: Of the rows that are part of an optimizer: around the base, and around the whole.
BASES = {
    "optax.masked": optax.chain(optax.masked(optax.trace(0.9), matrices), optax.sgd(RATE)),
    "optax.partition": optax.partition(PARTS, kinds),
    "schedules, inject_hyperparams": inject(optax.sgd),
    "optax.contrib.schedule_free": optax.contrib.schedule_free(optax.sgd(RATE), learning_rate=RATE),
    "clipping, by layer or of all": optax.chain(
        jn.clip_by_layer_norm(0.1), optax.clip_by_global_norm(0.1), optax.sgd(RATE)
    ),
}
AROUND = {
    "optax.masked": lambda tx: optax.masked(tx, lambda tree: jax.tree.map(lambda _: True, tree)),
    "optax.partition": lambda tx: optax.partition({"all": tx}, lambda tree: "all"),
    "optax.apply_if_finite": lambda tx: optax.apply_if_finite(tx, max_consecutive_errors=3),
    "optax.MultiSteps": lambda tx: optax.MultiSteps(tx, every_k_schedule=2),
    "optax.contrib.sam": lambda tx: optax.contrib.sam(tx, optax.sgd(0.05), sync_period=2),
}
MODELS = {
    "bfloat16 computing, float32 parameters": in_bfloat16,
    "jax.checkpoint (remat)": rematted,
}
AVERAGE, SCHEDULE_FREE = "an average of the parameters (EMA)", "optax.contrib.schedule_free"
SAM, SCAN = "optax.contrib.sam", "scan over layers"
SHARDED, FSDP = "sharded parameters and batches", "parameters in parts along any axis (FSDP)"


def averaged(trees: Any) -> Any:
    """The mean of the parameters after each step."""
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *trees)


def sharded(tree: Any) -> Any:
    """On eight devices, along the last axis, which counts the units; of X the rows."""
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.tree.map(
        lambda leaf: jax.device_put(
            leaf, NamedSharding(mesh, PartitionSpec(*(None,) * (leaf.ndim - 1), "d"))
        ),
        tree,
    )


def in_parts(tree: Any) -> Any:
    """On eight devices, along the first axis: the fan-in of kernels; of X the rows, likewise."""
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("d")))


#: How parameters lie on devices, and rows.
PLACES = {SHARDED: (sharded, lambda x: sharded(x.T).T), FSDP: (in_parts, in_parts)}


def off_until(put_back: Any, average: Any) -> bool:
    """Whether the average is off the sphere, and what puts it back does."""
    return drift(average) > 100 * DRIFT and drift(put_back(average)) < DRIFT


def constrain(row: str) -> str:
    raw, tx = constrained(BASES.get(row))
    if row == AVERAGE:
        trees, _ = train(tx, raw, jax.grad(loss_of(apply)))
        return "project" if off_until(jn.project, averaged(trees)) else "?"
    if row == SCHEDULE_FREE:
        (*_, last), (*_, state) = train(tx, raw, jax.grad(loss_of(apply)))
        at = optax.contrib.schedule_free_eval_params(state[0], last)
        return "project" if drift(last) < DRIFT and off_until(jn.project, at) else "?"
    if row == SAM:
        outside, _ = constrained(AROUND[SAM](optax.sgd(RATE)))[::-1]
        assert not inside_is_outside(outside, AROUND[SAM](tx), raw)
        return "inside" if on_sphere(AROUND[SAM](tx), raw) else "?"
    if row == SCAN:
        layout = jn.traced_layout(scanned, STACKED, X)
        raw, tx = constrained(params=STACKED, layout=layout)
        return "yes" if on_sphere(tx, raw, scanned, layout) else "?"
    start = PLACES[row][0](raw) if row in PLACES else raw
    whole = AROUND.get(row, lambda tx: tx)(tx)
    kept = on_sphere(whole, start, MODELS.get(row, apply)) and on_sphere(tx, start)
    return "yes" if kept else "?"


def inside_is_outside(one: Any, other: Any, raw: Any) -> bool:
    """Whether it does not matter which is around which."""
    ends = [train(tx, raw, jax.grad(loss_of(apply)))[0][-1] for tx in (one, other)]
    return largest_difference(*ends) < 1e-4


def noise_injection(row: str) -> str:
    raw, tx = constrained(BASES.get(row))
    around = AROUND.get(row, lambda tx: tx)
    noisy = jn.noise_injection(tx, STDDEV, seed=0)
    if row == AVERAGE:
        trees, states = train(noisy, raw, fixed)
        clean = [jn.clean_parameters(*pair) for pair in zip(states, trees, strict=True)]
        wanted = averaged(train(tx, raw, fixed)[0])
        far = largest_difference(averaged(trees), wanted) > 1e-2
        near = largest_difference(averaged(clean), wanted) < 1e-5
        return "clean_parameters" if far and near else "?"
    if row == SCHEDULE_FREE:
        right = clean_as_without(noisy, tx, raw)
        return "outside" if right and not right_inside_schedule_free(raw) else "?"
    if row == SAM:
        assert not one_draw_a_pair(jn.noise_injection(around(tx), STDDEV, seed=0), raw)
        right = clean_as_without(around(noisy), around(tx), raw)
        return "inside" if right and one_draw_a_pair(around(noisy), raw) else "?"
    if row == SCAN:
        layout = jn.traced_layout(scanned, STACKED, X)
        raw, tx = constrained(params=STACKED, layout=layout)
        noisy = jn.noise_injection(tx, STDDEV, seed=0)
    if row in MODELS:
        gradients = [jax.grad(loss_of(model))(raw) for model in (apply, MODELS[row])]
        assert largest_difference(*gradients) < 0.05
    start = PLACES[row][0](raw) if row in PLACES else raw
    same = clean_as_without(around(noisy), around(tx), start)
    if row in PLACES:  # the draws themselves
        same &= largest_difference(*(train(noisy, r, fixed)[0][-1] for r in (start, raw))) < 1e-5
    return "yes" if same else "?"


def right_inside_schedule_free(raw: Any) -> bool:
    """Whether the same holds with the noise inside of what keeps parameters of its own."""
    plain = optax.sgd(RATE)
    noisy = jn.noise_injection(plain, STDDEV, seed=0)
    wrapped = [optax.contrib.schedule_free(tx, learning_rate=RATE) for tx in (noisy, plain)]
    return clean_as_without(*wrapped, raw)


def one_draw_a_pair(tx: Any, raw: Any) -> bool:
    """Whether the two gradients of a pair, the third and fourth, see the same noise."""
    trees, _ = train(tx, raw, fixed)
    scales = [tree["dense"]["kernel"].scale for tree in trees]
    return bool((scales[3] == scales[2]).all())


def with_scale_noise(row: str) -> str:
    if row == SCAN:
        layout = jn.traced_layout(scanned, STACKED, X)
        raw, tx = constrained(params=STACKED, layout=layout)
        noisy = jn.with_scale_noise(scanned, STDDEV, layout=layout)
        gradient_of = jax.grad(lambda raw: jnp.square(noisy(jax.random.key(1), raw, X)).mean())
        last = train(tx, raw, gradient_of)[0][-1]
        felt = largest_difference(last, train(tx, raw, jax.grad(loss_of(scanned)))[0][-1]) > 1e-3
        return "yes" if felt and drift(last, layout) < DRIFT else "?"
    raw, tx = constrained(BASES.get(row))
    value, gradient = noisy_loss(apply, raw)
    assert largest_difference(value, apply(jn.effective(raw), X)) > 0.1
    if row in MODELS:
        other, gradients = noisy_loss(MODELS[row], raw)
        half = row.startswith("bfloat16")
        assert largest_difference(gradients, gradient) < (0.1 if half else 1e-5)
        return "yes" if largest_difference(other, value) < (0.1 if half else 1e-5) else "?"
    if row in PLACES:
        parameters, rows = PLACES[row]
        other, gradients = noisy_loss(apply, parameters(raw), rows(X))
        assert largest_difference(gradients, gradient) < 1e-5
        return "yes" if largest_difference(other, value) < 1e-5 else "?"
    whole = AROUND.get(row, lambda tx: tx)(tx)
    noisy = jn.with_scale_noise(apply, STDDEV)
    gradient_of = jax.grad(lambda raw: jnp.square(noisy(jax.random.key(1), raw, X)).mean())
    last = train(whole, raw, gradient_of)[0][-1]
    quiet = train(whole, raw, jax.grad(loss_of(apply)))[0][-1]
    felt = largest_difference(last, quiet) > 1e-3
    return "yes" if felt and drift(last) < DRIFT else "?"


def test_the_table_has_the_three_columns() -> None:
    assert COLUMNS == ["constrain", "noise_injection", "with_scale_noise"]
    assert len(CELLS) == 3 * len(TABLE[2:]) == 42


@pytest.mark.slow  # of what a composition does; the property tests have the steps themselves
@pytest.mark.parametrize(
    ("row", "column", "said"), CELLS, ids=[f"{column}, {row}" for row, column, _ in CELLS]
)
def test_cell(row: str, column: str, said: str) -> None:
    assert row in {*BASES, *AROUND, *MODELS, *PLACES, AVERAGE, SCAN}
    assert globals()[column](row) == said


def test_what_is_compared_is_not_nothing() -> None:
    """The two measures would see a step off the sphere, and noise in the clean parameters."""
    raw, tx = constrained()
    assert not on_sphere(optax.chain(tx, optax.scale(0.5)), raw)
    noisy = jn.noise_injection(tx, STDDEV, seed=0)
    assert not clean_as_without(optax.chain(noisy, optax.scale(0.5)), tx, raw)
    assert np.isfinite(largest_difference(PARAMS, PARAMS))
