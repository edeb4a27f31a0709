"""The table of docs/guides/compose.md: each of its cells is what is seen.

Each function of a column runs the composition and says what it found, in the words of the guide:
"yes", or what has to be done. What is asked of the three columns:

- `constrain`: the units are on the sphere after the last step, and have moved;
- `noise_injection`: the visible scales are noisy, and the clean parameters are those of the same
  steps without noise, under gradients that do not depend on the noise;
- `with_scale_noise`: the noise is that of the plain network, and training feels it.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxnorm as jn
from tests.devices import mesh
from tests.trees import largest_difference, quick_jit

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
STEPS, RATE, STDDEV, DRIFT = 4, 0.3, 0.5, 1e-5

_draw = np.random.default_rng(5)
X, KERNEL, BIAS, STACK = (
    jnp.asarray(_draw.normal(size=shape), jnp.float32) for shape in ((8, 8), (8, 8), 8, (2, 8, 8))
)
PARAMS, STACKED = {"dense": {"kernel": KERNEL, "bias": BIAS}}, {"layers": {"kernel": STACK}}


def apply(params: Any, x: Any) -> Any:
    return x @ params["dense"]["kernel"] + params["dense"]["bias"][None]


def in_bfloat16(params: Any, x: Any) -> Any:
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    return apply(half, x.astype(jnp.bfloat16)).astype(jnp.float32)


def scanned(params: Any, x: Any) -> Any:
    def layer(x: Any, own: Any) -> Any:
        return jnp.tanh(x @ own["kernel"]), None

    return jax.lax.scan(layer, x, params["layers"])[0]


def matrices(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, tree)


def kinds(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: "matrix" if leaf.ndim > 1 else "vector", tree)


AVERAGE, SCHEDULE_FREE = "an average of the parameters (EMA)", "optax.contrib.schedule_free"
SAM, SCAN, HALF = "optax.contrib.sam", "scan over layers", "bfloat16 computing, float32 parameters"
SCHEDULED = optax.inject_hyperparams(optax.sgd)
#: Of the rows that are part of an optimizer: around the base, and around the whole.
BASES = {
    "optax.masked": optax.chain(optax.masked(optax.trace(0.9), matrices), optax.sgd(RATE)),
    "optax.partition": optax.partition(
        {"matrix": optax.sgd(RATE), "vector": optax.adam(1e-2)}, kinds
    ),
    "schedules, inject_hyperparams": SCHEDULED(optax.linear_schedule(RATE, 0.1, 9)),
    SCHEDULE_FREE: optax.contrib.schedule_free(optax.sgd(RATE), learning_rate=RATE),
    "clipping, by layer or of all": optax.chain(
        jn.clip_by_layer_norm(0.1), optax.clip_by_global_norm(0.1), optax.sgd(RATE)
    ),
}
AROUND = {
    "optax.masked": lambda tx: optax.masked(tx, lambda tree: jax.tree.map(lambda _: True, tree)),
    "optax.partition": lambda tx: optax.partition({"all": tx}, lambda tree: "all"),
    "optax.apply_if_finite": lambda tx: optax.apply_if_finite(tx, max_consecutive_errors=3),
    "optax.MultiSteps": lambda tx: optax.MultiSteps(tx, every_k_schedule=2),
    SAM: lambda tx: optax.contrib.sam(tx, optax.sgd(0.05), sync_period=2),
}
MODELS = {HALF: in_bfloat16, "jax.checkpoint (remat)": jax.checkpoint(apply), SCAN: scanned}
#: How parameters and rows lie on eight devices: by units, which the last axis counts, and in parts
#: of the first axis, the fan-in of kernels; rows by the first axis in both.
PLACES = {
    "sharded parameters and batches": lambda ndim: (*(None,) * (ndim - 1), "data"),
    "parameters in parts along any axis (FSDP)": lambda ndim: ("data",),
}


class Composed(NamedTuple):
    """A row: its network, raw parameters, optimizer, and what goes around that."""

    model: Any
    layout: Any
    raw: Any
    x: Any
    tx: Any
    around: Any


def placed(tree: Any, axes: Any) -> Any:
    where = lambda leaf: NamedSharding(mesh(8), PartitionSpec(*axes(leaf.ndim)))  # noqa: E731
    return jax.tree.map(lambda leaf: jax.device_put(leaf, where(leaf)), tree)


def composed(row: str) -> Composed:
    model, params, layout = MODELS.get(row, apply), PARAMS, jn.flax_layout
    if row == SCAN:
        params, layout = STACKED, jn.traced_layout(scanned, STACKED, X)
    raw, tx = jn.constrain(params, BASES.get(row, optax.sgd(RATE)), layout=layout)
    x = X
    if row in PLACES:
        raw, x = placed(raw, PLACES[row]), placed(X, lambda ndim: ("data",))
    return Composed(model, layout, raw, x, tx, AROUND.get(row, lambda tx: tx))


def train(tx: Any, raw: Any, gradient: Any) -> tuple[list[Any], list[Any]]:
    """The parameters before and after each step, and the optimizer's states."""

    @quick_jit
    def step(raw: Any, state: Any) -> Any:
        updates, state = tx.update(gradient(raw), state, raw)
        return optax.apply_updates(raw, updates), state

    trees, states = [raw], [tx.init(raw)]
    for _ in range(STEPS):
        raw, state = step(raw, states[-1])
        trees.append(raw)
        states.append(state)
    return trees, states


def gradient_of(model: Any, x: Any = X) -> Any:
    return jax.grad(lambda raw: jnp.square(model(jn.effective(raw), x)).mean())


def fixed(raw: Any) -> Any:
    """A gradient that noise on the scales does not change: none of the scales, sines elsewhere."""

    def of(path: Any, leaf: Any) -> Any:
        is_scale = "scale" in jax.tree_util.keystr(path)
        return jnp.zeros_like(leaf) if is_scale else jnp.sin(leaf)

    return jax.lax.stop_gradient(jax.tree_util.tree_map_with_path(of, raw))


def drift(raw: Any, layout: Any = jn.flax_layout) -> float:
    return max(float(value) for value in jn.constraint_drift(raw, layout=layout).values())


def on_sphere(last: Any, start: Any, layout: Any = jn.flax_layout) -> bool:
    return drift(last, layout) < DRIFT and largest_difference(last, start) > 1e-3


def averaged(trees: Any) -> Any:
    """The mean of the parameters after each step."""
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *trees)


def off_until_projected(average: Any) -> bool:
    return drift(average) > 100 * DRIFT and drift(jn.project(average)) < DRIFT


def constrain(row: str) -> str:
    model, layout, raw, x, tx, around = composed(row)
    trees, states = train(around(tx), raw, gradient_of(model, x))
    assert on_sphere(trees[-1], raw, layout)
    if row == AVERAGE:
        return "project" if off_until_projected(averaged(trees)) else "?"
    if row == SCHEDULE_FREE:
        kept = optax.contrib.schedule_free_eval_params(states[-1][0], trees[-1])
        return "project" if off_until_projected(kept) else "?"
    if row == SAM:
        outside = jn.constrain(PARAMS, around(optax.sgd(RATE)))[1]
        last = train(outside, raw, gradient_of(model))[0][-1]
        return "inside" if largest_difference(last, trees[-1]) > 1e-4 else "?"
    return "yes"


def clean_as_without(noisy: Any, plain: Any, raw: Any) -> bool:
    (*_, last), (*_, state) = train(noisy, raw, fixed)
    wanted, clean = train(plain, raw, fixed)[0][-1], jn.clean_parameters(state, last)
    return largest_difference(clean, wanted) < 1e-5 and largest_difference(last, clean) > 1e-2


def noise_injection(row: str) -> str:
    _, _, raw, _, tx, around = composed(row)
    noise = lambda tx: jn.noise_injection(tx, STDDEV, seed=0)  # noqa: E731
    assert clean_as_without(around(noise(tx)), around(tx), raw)
    if row == AVERAGE:
        trees, states = train(noise(tx), raw, fixed)
        clean = [jn.clean_parameters(*pair) for pair in zip(states, trees, strict=True)]
        wanted = averaged(train(tx, raw, fixed)[0])
        assert largest_difference(averaged(trees), wanted) > 1e-2
        return "clean_parameters" if largest_difference(averaged(clean), wanted) < 1e-5 else "?"
    if row == SCHEDULE_FREE:
        bases = noise(optax.sgd(RATE)), optax.sgd(RATE)
        inside = [optax.contrib.schedule_free(base, learning_rate=RATE) for base in bases]
        return "?" if clean_as_without(*inside, raw) else "outside"
    if row == SAM:
        both = one_draw_a_pair(around(noise(tx)), raw), one_draw_a_pair(noise(around(tx)), raw)
        return "inside" if both == (True, False) else "?"
    return "yes"


def one_draw_a_pair(tx: Any, raw: Any) -> bool:
    """Whether the two gradients of a pair, the third and fourth, see the same noise."""
    trees, _ = train(tx, raw, fixed)
    scales = [tree["dense"]["kernel"].scale for tree in trees]
    return bool((scales[3] == scales[2]).all())


def seen(model: Any, raw: Any, x: Any) -> Any:
    """The output, and the gradient of its mean square."""
    slope = jax.grad(lambda raw, x: jnp.square(model(raw, x)).mean())
    return quick_jit(model)(raw, x), quick_jit(slope)(raw, x)


def with_scale_noise(row: str) -> str:
    model, layout, raw, x, tx, around = composed(row)

    def noisy(model: Any, layout: Any = layout) -> Any:
        wrapped = jn.with_scale_noise(model, STDDEV, layout=layout)
        return lambda raw, x=x: wrapped(jax.random.key(3), raw, x)

    here = seen(noisy(model), raw, x)
    wanted = seen(noisy(scanned if row == SCAN else apply), *jax.device_get((raw, X)))
    assert largest_difference(here, wanted) < (0.1 if row == HALF else 1e-5)
    last, quiet = (
        train(around(tx), raw, gradient)[0][-1]
        for gradient in (gradient_of(noisy(model)), gradient_of(model, x))
    )
    felt = largest_difference(last, quiet) > 1e-3
    return "yes" if felt and drift(last, layout) < DRIFT else "?"


def test_the_table_has_the_three_columns() -> None:
    assert COLUMNS == ["constrain", "noise_injection", "with_scale_noise"]
    assert len(CELLS) == 3 * len(TABLE[2:]) == 42
    assert {row for row, _, _ in CELLS} == {*BASES, *AROUND, *MODELS, *PLACES, AVERAGE}


@pytest.mark.slow  # of what a composition does; the property tests have the steps themselves
@pytest.mark.parametrize(
    ("row", "column", "said"), CELLS, ids=[f"{column}, {row}" for row, column, _ in CELLS]
)
def test_cell(row: str, column: str, said: str) -> None:
    assert globals()[column](row) == said
