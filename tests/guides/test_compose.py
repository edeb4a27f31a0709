"""Each cell of the table in docs/guides/compose.md, executed.

Each function of a column runs a row's composition and returns the word of the guide that describes
the result: "yes", or the recipe. Requirements of the three columns:

- `constrain`: the units are on the sphere after the last step, and have moved;
- `noise_injection`: the visible scales are noisy, and the clean parameters are those of the same
  steps without noise, under gradients that do not depend on the noise;
- `with_scale_noise`: the noise is that of the plain network, and changes the training.
"""

import re
from collections.abc import Callable
from functools import partial
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
from tests.draws import float32
from tests.trees import by_path, largest_difference, quick_jit

pytestmark = pytest.mark.usefixtures("standard_promotion")

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "compose.md").read_text()
TABLE = [
    [cell.replace("`", "").strip() for cell in line.strip("|").split("|")]
    for line in re.search(r"^\| with .*?\n\n", GUIDE, re.M | re.S)[0].strip().splitlines()  # type: ignore[index]  # it is there
]
COLUMNS = TABLE[0][1:]
CELLS = [
    (row[0], column, word)
    for row in TABLE[2:]
    for column, word in zip(COLUMNS, row[1:], strict=True)
]
STEPS, RATE, STDDEV, DRIFT = 4, 0.3, 0.5, 1e-5

_random = np.random.default_rng(5)
X, KERNEL, BIAS, STACK = (
    float32(_random.normal(size=shape)) for shape in ((8, 8), (8, 8), 8, (2, 8, 8))
)
PARAMS, STACKED = {"dense": {"kernel": KERNEL, "bias": BIAS}}, {"layers": {"kernel": STACK}}


def apply(params: Any, x: Any) -> Any:
    return x @ params["dense"]["kernel"] + params["dense"]["bias"][None]


def in_bfloat16(params: Any, x: Any) -> Any:
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    return apply(half, x.astype(jnp.bfloat16)).astype(jnp.float32)


def scanned(params: Any, x: Any) -> Any:
    def layer(x: Any, params: Any) -> Any:
        return jnp.tanh(x @ params["kernel"]), None

    return jax.lax.scan(layer, x, params["layers"])[0]


SCAN_LAYOUT = jn.traced_layout(jn.read(scanned, STACKED, X))


def is_kernel(path: Any, leaf: Any) -> bool:
    return jax.tree_util.keystr(path, simple=True, separator="/").endswith("kernel")


def kernels(tree: Any) -> Any:
    return jax.tree_util.tree_map_with_path(is_kernel, tree)


def matrices(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, tree)


def kinds(tree: Any) -> Any:
    return jax.tree.map(lambda kernel: "kernel" if kernel else "vector", kernels(tree))


def dimensions(raw: Any) -> Any:
    numbers = optax.contrib.MuonDimensionNumbers
    return jax.tree.map(lambda leaf, axes: axes and numbers(axes, (-1,)), raw, SCAN_LAYOUT(raw))


def decay(mask: Callable[[Any], Any]) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(0.1, mask=mask), optax.sgd(RATE))


AVERAGE, SCHEDULE_FREE = "an average of the parameters (EMA)", "optax.contrib.schedule_free"
SAM, SCAN, HALF = "optax.contrib.sam", "scan over layers", "bfloat16 computing, float32 parameters"
LOOKAHEAD, LBFGS = "optax.lookahead", "optax.lbfgs"
ANGLE = "fixed_step after the optimizer"
DECAY, MUON = "weight decay of stacked layers", "optax.contrib.muon on stacked layers"
SCHEDULED = optax.inject_hyperparams(optax.sgd)
#: Base optimizers of the rows that are part of an optimizer.
BASES = {
    "optax.masked": optax.chain(optax.masked(optax.trace(0.9), kernels), optax.sgd(RATE)),
    "optax.partition": optax.partition(
        {"kernel": optax.sgd(RATE), "vector": optax.adam(1e-2)}, kinds
    ),
    "schedules, inject_hyperparams": SCHEDULED(optax.linear_schedule(RATE, 0.1, 9)),
    SCHEDULE_FREE: optax.contrib.schedule_free(optax.sgd(RATE), learning_rate=RATE),
    "clipping, by layer or of all": optax.chain(
        jn.clip_by_layer_norm(0.1), optax.clip_by_global_norm(0.1), optax.sgd(RATE)
    ),
    ANGLE: optax.chain(optax.sgd(RATE), jn.fixed_step(0.3)),
    LOOKAHEAD: optax.lookahead(optax.sgd(RATE), sync_period=2, slow_step_size=0.5),
    LBFGS: optax.lbfgs(),
    DECAY: decay(kernels),
    MUON: optax.contrib.muon(0.1, muon_weight_dimension_numbers=dimensions),
}
#: Transformations around the whole optimizer.
AROUND = {
    "optax.masked": lambda tx: optax.masked(tx, lambda tree: jax.tree.map(lambda _: True, tree)),
    "optax.partition": lambda tx: optax.partition({"all": tx}, lambda tree: "all"),
    "optax.apply_if_finite": lambda tx: optax.apply_if_finite(tx, max_consecutive_errors=3),
    "optax.MultiSteps": lambda tx: optax.MultiSteps(tx, every_k_schedule=2),
    SAM: lambda tx: optax.contrib.sam(tx, optax.sgd(0.05), sync_period=2),
}
MODELS = {
    HALF: in_bfloat16,
    "jax.checkpoint (remat)": jax.checkpoint(apply),
    **dict.fromkeys((SCAN, DECAY, MUON), scanned),
}
#: Axes over eight devices: the units (last axis), or the first axis, which is a kernel's fan-in.
#: The rows of the batch lie along the first axis in both.
PLACES = {
    "sharded parameters and batches": lambda ndim: (*(None,) * (ndim - 1), "data"),
    "parameters in parts along any axis (FSDP)": lambda ndim: ("data",),
}


class Composition(NamedTuple):
    """A row: its network, raw parameters and optimizer, and the wrapper around the optimizer."""

    model: Any
    layout: Any
    raw: Any
    x: Any
    tx: Any
    around: Any


def placed(tree: Any, axes: Any) -> Any:
    where = lambda leaf: NamedSharding(mesh(8), PartitionSpec(*axes(leaf.ndim)))  # noqa: E731
    return jax.tree.map(lambda leaf: jax.device_put(leaf, where(leaf)), tree)


def composition(row: str) -> Composition:
    model, params, layout = MODELS.get(row, apply), PARAMS, jn.flax_layout
    if model is scanned:
        params, layout = STACKED, SCAN_LAYOUT
    raw, tx = jn.constrain(params, BASES.get(row, optax.sgd(RATE)), layout=layout)
    x = X
    if row in PLACES:
        raw, x = placed(raw, PLACES[row]), placed(X, lambda ndim: ("data",))
    return Composition(model, layout, raw, x, tx, AROUND.get(row, lambda tx: tx))


def train(tx: Any, raw: Any, gradient: Any) -> tuple[list[Any], list[Any]]:
    """The parameters and the optimizer's states before and after each step."""

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


def mean_square(model: Any, x: Any = X) -> Any:
    return lambda raw: jnp.square(model(jn.effective(raw), x)).mean()


def gradient_of(model: Any, x: Any = X) -> Any:
    return jax.grad(mean_square(model, x))


def fixed(raw: Any) -> Any:
    """A gradient that noise on the scales does not change: zero for scales, sines elsewhere."""

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
    model, layout, raw, x, tx, around = composition(row)
    trees, states = train(around(tx), raw, gradient_of(model, x))
    assert on_sphere(trees[-1], raw, layout)
    if row == AVERAGE:
        return "project" if off_until_projected(averaged(trees)) else "?"
    if row == SCHEDULE_FREE:
        average = optax.contrib.schedule_free_eval_params(states[-1][0], trees[-1])
        return "project" if off_until_projected(average) else "?"
    if row == SAM:
        outside = jn.constrain(PARAMS, around(optax.sgd(RATE)))[1]
        last = train(outside, raw, gradient_of(model))[0][-1]
        return "inside" if largest_difference(last, trees[-1]) > 1e-4 else "?"
    if row == DECAY:
        decayed = [decays_scales(mask, raw) for mask in (kernels, matrices)]
        return "by path" if decayed == [False, True] else "?"
    if row == MUON:
        right = [matches_single_layers(tx, raw) for tx in (BASES[MUON], optax.contrib.muon(0.1))]
        return "by layout" if right == [True, False] else "?"
    return "yes"


def decays_scales(mask: Callable[[Any], Any], raw: Any) -> bool:
    """True if a step with gradient zero changes the scales; it must change the kernels."""
    tx = decay(mask)
    updates = by_path(tx.update(jax.tree.map(jnp.zeros_like, raw), tx.init(raw), raw)[0])
    assert jnp.any(updates["layers/kernel/kernel"] != 0)
    return bool(jnp.any(updates["layers/kernel/scale"] != 0))


def matches_single_layers(tx: Any, raw: Any) -> bool:
    """True if the update of each stacked kernel is that of the kernel alone."""

    def kernel_update(tx: Any, params: Any, path: str) -> Any:
        return by_path(tx.update(params, tx.init(params), params)[0])[path]

    stacked = kernel_update(tx, raw, "layers/kernel/kernel")
    single = partial(kernel_update, optax.contrib.muon(0.1), path="kernel")
    layers = [single({"kernel": kernel}) for kernel in raw["layers"]["kernel"].kernel]
    return bool(jnp.allclose(stacked, jnp.stack(layers), atol=1e-6))


def clean_as_without(noisy: Any, plain: Any, raw: Any) -> bool:
    (*_, last), (*_, state) = train(noisy, raw, fixed)
    expected, clean = train(plain, raw, fixed)[0][-1], jn.clean_parameters(state, last)
    return largest_difference(clean, expected) < 1e-5 and largest_difference(last, clean) > 1e-2


def noise_injection(row: str) -> str:
    _, _, raw, _, tx, around = composition(row)
    noise = partial(jn.noise_injection, stddev=STDDEV, seed=0)
    assert clean_as_without(around(noise(tx)), around(tx), raw)
    if row == AVERAGE:
        trees, states = train(noise(tx), raw, fixed)
        clean = [jn.clean_parameters(*pair) for pair in zip(states, trees, strict=True)]
        expected = averaged(train(tx, raw, fixed)[0])
        assert largest_difference(averaged(trees), expected) > 1e-2
        return "clean_parameters" if largest_difference(averaged(clean), expected) < 1e-5 else "?"
    if row == SCHEDULE_FREE:
        bases = noise(optax.sgd(RATE)), optax.sgd(RATE)
        inside = [optax.contrib.schedule_free(base, learning_rate=RATE) for base in bases]
        noisy, plain = (evaluated(*train(tx, raw, fixed)) for tx in inside)
        return "outside" if largest_difference(noisy, plain) > 1e-2 else "?"
    if row == SAM:
        pairs = one_draw_per_pair(around(noise(tx)), raw), one_draw_per_pair(noise(around(tx)), raw)
        return "inside" if pairs == (True, False) else "?"
    return "yes"


def evaluated(trees: list[Any], states: list[Any]) -> Any:
    """The average of `schedule_free` after the last step."""
    return optax.contrib.schedule_free_eval_params(states[-1], trees[-1])


def one_draw_per_pair(tx: Any, raw: Any) -> bool:
    """True if the two gradients of a pair, the third and fourth, see the same noise."""
    trees, _ = train(tx, raw, fixed)
    scales = [tree["dense"]["kernel"].scale for tree in trees]
    return bool((scales[3] == scales[2]).all())


def output_and_gradient(model: Any, raw: Any, x: Any) -> Any:
    """The output, and the gradient of its mean square."""
    slope = jax.grad(lambda raw, x: jnp.square(model(raw, x)).mean())
    return quick_jit(model)(raw, x), quick_jit(slope)(raw, x)


def with_noise(model: Any, layout: Any, x: Any) -> Any:
    noisy = jn.with_scale_noise(model, STDDEV, layout=layout)
    return lambda raw, x=x: noisy(jax.random.key(3), raw, x)


def with_scale_noise(row: str) -> str:
    model, layout, raw, x, tx, around = composition(row)
    noisy = with_noise(model, layout, x)
    plain = with_noise(scanned if model is scanned else apply, layout, x)
    outputs = output_and_gradient(noisy, raw, x)
    expected = output_and_gradient(plain, *jax.device_get((raw, X)))
    assert largest_difference(outputs, expected) < (0.1 if row == HALF else 1e-5)
    last, quiet = (
        train(around(tx), raw, gradient)[0][-1]
        for gradient in (gradient_of(noisy), gradient_of(model, x))
    )
    changes = largest_difference(last, quiet) > 1e-3
    return "yes" if changes and drift(last, layout) < DRIFT else "?"


def train_pair(tx: Any, raw: Any, gradient: Any) -> Any:
    """The fast and the slow copy after training with the gradients at the fast one."""
    pair = optax.LookaheadParams.init_synced(raw)
    return train(tx, pair, lambda pair: gradient(pair.fast))[0][-1]


def lookahead(column: str) -> str:
    _, layout, raw, x, tx, _ = composition(LOOKAHEAD)
    if column == "noise_injection":
        with pytest.raises(ValueError):  # noqa: PT011  # JAX's own, of two structures
            train_pair(jn.noise_injection(tx, STDDEV, seed=0), raw, fixed)
        return "no"
    if column == "with_scale_noise":
        gradients = gradient_of(with_noise(apply, layout, x)), gradient_of(apply)
        last, quiet = (train_pair(tx, raw, gradient) for gradient in gradients)
        return "yes" if largest_difference(last, quiet) > 1e-3 and drift(last) < DRIFT else "?"
    within = optax.lookahead(jn.constrain(PARAMS, optax.sgd(RATE))[1], 2, 0.5)
    fast, slow = train_pair(tx, raw, gradient_of(apply))
    assert on_sphere(fast, raw)
    assert on_sphere(slow, raw)
    drifts = [drift(copy) for copy in train_pair(within, raw, gradient_of(apply))]
    return "outside" if min(drifts) > 100 * DRIFT else "?"


class Probe(NamedTuple):
    """The parameters that an optimizer received with the last update."""

    received: Any


def probe() -> optax.GradientTransformation:
    return optax.GradientTransformation(Probe, lambda updates, _, params: (updates, Probe(params)))


def minimize(tx: Any, raw: Any, loss: Any, value_and_grad: Any) -> tuple[list[Any], list[float]]:
    """The parameters of each step of L-BFGS, and the relative errors of the gradients it used."""

    @quick_jit
    def step(raw: Any, state: Any) -> Any:
        value, gradient = value_and_grad(raw, state=state)
        updates, state = tx.update(gradient, state, raw, value=value, grad=gradient, value_fn=loss)
        exact = jax.grad(loss)(raw)
        error = optax.tree.norm(jax.tree.map(jnp.subtract, gradient, exact))
        return optax.apply_updates(raw, updates), state, error / optax.tree.norm(exact)

    trees, state, errors = [raw], tx.init(raw), []
    for _ in range(STEPS):
        raw, state, error = step(trees[-1], state)
        trees.append(raw)
        errors.append(float(error))
    return trees, errors


def lbfgs(column: str) -> str:
    _, layout, raw, x, tx, _ = composition(LBFGS)
    if column == "noise_injection":
        trees, states = train(jn.noise_injection(probe(), STDDEV, seed=0), raw, fixed)
        searched = optax.tree.get(states[-1], "received")
        return "no" if largest_difference(searched, trees[-2]) > 1e-2 else "?"
    model = with_noise(apply, layout, x) if column == "with_scale_noise" else apply
    loss = lambda raw: jnp.square(model(jn.effective(raw), x) - jnp.roll(x, 1, 0)).mean()  # noqa: E731
    trees, errors = minimize(tx, raw, loss, lambda raw, state: jax.value_and_grad(loss)(raw))
    assert on_sphere(trees[-1], raw)
    assert max(errors) < 1e-5
    losses = [float(loss(tree)) for tree in trees]
    assert losses == sorted(losses, reverse=True)
    if column == "with_scale_noise":
        return "one key"
    _, stored = minimize(tx, raw, loss, optax.value_and_grad_from_state(loss))
    return "fresh gradient" if max(stored) > 0.05 else "?"


def test_the_table_has_the_three_columns() -> None:
    assert COLUMNS == ["constrain", "noise_injection", "with_scale_noise"]
    assert len(CELLS) == 3 * len(TABLE[2:]) == 57
    assert {row for row, _, _ in CELLS} == {*BASES, *AROUND, *MODELS, *PLACES, AVERAGE}


@pytest.mark.slow  # of what a composition does; the property tests have the steps themselves
@pytest.mark.parametrize(
    ("row", "column", "word"), CELLS, ids=[f"{column}, {row}" for row, column, _ in CELLS]
)
def test_cell(row: str, column: str, word: str) -> None:
    whole_row = {LOOKAHEAD: lookahead, LBFGS: lbfgs}
    assert (whole_row[row](column) if row in whole_row else globals()[column](row)) == word
