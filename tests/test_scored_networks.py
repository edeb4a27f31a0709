"""Batch normalization in `examples/networks/`: scored with statistics of the final parameters."""

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from examples.networks import built, methods, mimicnorm, run, ten, whole
from examples.networks.earlier import ANEW, NONE, is_earlier, unmixed
from examples.networks.report import cells, note_of
from examples.networks.statistics import estimate_by, keep, settled
from examples.networks.summary import write_summary
from examples.networks.training import Arrays, Plan, Split, make_run

CLASSES, CHANNELS = 3, 2


@pytest.fixture(autouse=True)
def _promotion() -> Iterator[None]:
    """The rules of a user's process."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class OfNNX(nnx.Module):
    """A convolution and batch normalization."""

    def __init__(self, rngs: nnx.Rngs, shape: Any, classes: int, momentum: float = 0.9):
        self.conv = nnx.Conv(shape[-1], CHANNELS, (1, 1), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(CHANNELS, momentum=momentum, rngs=rngs)
        self.head = nnx.Linear(CHANNELS, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        return self.head(nnx.relu(self.norm(self.conv(x))).mean((1, 2)))


class OfLinen(nn.Module):
    """Network of one library with another momentum."""

    momentum: float = 0.9

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Returns logits."""
        x = nn.Conv(CHANNELS, (1, 1), use_bias=False)(x)
        x = nn.BatchNorm(not train, momentum=self.momentum)(x)
        return nn.Dense(CLASSES)(nn.relu(x).mean((1, 2)))


def of_haiku(momentum: float) -> tuple[Any, ...]:
    def forward(x: jax.Array, train: bool) -> jax.Array:
        x = hk.BatchNorm(True, True, momentum)(hk.Conv2D(CHANNELS, 1, with_bias=False)(x), train)
        return hk.Linear(CLASSES)(jax.nn.relu(x).mean((1, 2)))

    pure = hk.without_apply_rng(hk.transform_with_state(forward))
    apply = lambda params, state, x, train: pure.apply(params, state, x, train)  # noqa: E731
    return apply, estimate_by(ten.from_zeros(apply)), *pure.init(jax.random.key(0), images(2), True)


def network(library: str, momentum: float) -> tuple[Any, ...]:
    """Returns apply, estimate, parameters and state."""
    if library == "Haiku":
        return of_haiku(momentum)
    if library == "Linen":
        model = OfLinen(momentum)
        variables = dict(model.init(jax.random.key(0), images(2), True))
        params = variables.pop("params")
        forgetful = built.of_linen(model.clone(momentum=0.0), True)
        return built.of_linen(model, True), estimate_by(forgetful), params, variables
    build = built.of_nnx(partial(OfNNX, momentum=momentum))
    found = build(images(2), CLASSES, "bn")
    if library == "MimicNorm":
        found = mimicnorm.mimicnorm(build(images(2), CLASSES, "none"), images(2), "^head/", 2).built
    return *found.usual, found.params, found.state


def images(rows: int) -> jax.Array:
    return 2 + jax.random.normal(jax.random.key(rows), (rows, 2, 2, 3))


LIBRARIES = ("NNX", "Linen", "Haiku", "MimicNorm")


def whitened(rows: jax.Array, library: str) -> np.ndarray:
    """Returns the logits of rows that are normalized by their own statistics, in training."""
    apply, _, params, state = network(library, 0.9)
    return np.asarray(apply(params, state, rows, train=True)[0])


@pytest.mark.kept("30-NNX", "30-MimicNorm")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("updates", [0, 1, 30])
def test_a_network_is_scored_with_the_statistics_of_its_rows(library: str, updates: int) -> None:
    apply, estimate, params, state = network(library, 0.9)
    for _ in range(updates):  # of other rows, with other statistics
        state = apply(params, state, 3 * images(8), train=True)[1]
    x, y = images(100), jnp.arange(100) % CLASSES
    scored = settled(apply, estimate, params, state, (x, y), 64)
    found = apply(params, scored, x, train=False)[0]
    np.testing.assert_allclose(found, whitened(x, library), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["NNX", "Linen", "Haiku"])
def test_the_momentum_changes_no_score(library: str) -> None:
    logits = []
    for momentum in (0.1, 0.99):
        apply, estimate, params, state = network(library, momentum)
        state = apply(params, state, 3 * images(8), train=True)[1]
        rows = images(100), jnp.arange(100) % CLASSES
        state = settled(apply, estimate, params, state, rows, 64)
        logits.append(np.asarray(apply(params, state, images(5), train=False)[0]))
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-6)


@pytest.mark.kept("bn-2")
@pytest.mark.parametrize(("method", "batch"), [("bn", 64), ("bn", 2), ("mimicnorm", 64)])
def test_whole_trainings_that_differ_in_the_momentum_end_equal(
    method: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.asarray(images(128))
    rows = Arrays(jnp.asarray(x), jnp.arange(128) % CLASSES)
    split = Split(rows, rows, rows, jnp.asarray(x.mean((0, 1, 2))), jnp.asarray(x.std((0, 1, 2))))
    plan = Plan(method, "sgd", 3, batch, 0, 0.0, False, False, False, CLASSES)
    outcomes = []
    for momentum in (0.1, 0.99):
        entry = built.Entry(built.of_nnx(partial(OfNNX, momentum=momentum)), "^head/", False)
        monkeypatch.setattr(methods, "ENTRIES", {"tiny": entry})
        prepared = methods.prepare(method, "tiny", images(8), CLASSES, images(64))
        outcomes.append(jax.jit(make_run(prepared, plan))(split, 0, 0.1, 1e-3))
    assert outcomes[0]["finite"]
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_trainings_of_the_ten_networks_that_differ_in_the_momentum_end_equal() -> None:
    rows = run.Rows(images(128), jnp.arange(128) % CLASSES)
    data, tx, outcomes = run.Data(rows, rows, rows, CLASSES), run.optimizer("sgd", 3), []
    for momentum in (0.1, 0.99):
        network = ten.of_nnx(partial(OfNNX, momentum=momentum))(0, images(2), CLASSES, True)
        training = run.make_training(network, tx)
        method = run.Method(network.params, tx)
        outcomes.append(run.train(training, network, method, 0.1, 3, 0, data))
    for name in ("initial_loss", "held_out", "test"):
        assert outcomes[0][name] == outcomes[1][name]


@pytest.mark.parametrize("prefers_small", [True, False])
def test_held_out_rows_choose_between_small_and_large_batches(prefers_small: bool) -> None:
    def apply(params: Any, state: Any, x: jax.Array, train: bool) -> tuple[jax.Array, Any]:
        right = (state["size"] == (2 if prefers_small else 50)).astype(jnp.float32)
        return right * jax.nn.one_hot(x, CLASSES), state

    seen = []

    def estimate(params: Any, state: Any, x: jax.Array, size: int) -> Any:
        seen.append((len(x), size))
        return {"size": jnp.float32(size)}

    y = jnp.arange(2000) % CLASSES
    labels = jnp.broadcast_to(y[:, None, None], (2000, 2, 2))
    state = settled(apply, estimate, None, {"size": jnp.float32(0)}, (labels, labels), 2)
    assert seen == [(1500, 50), (512, 2)]
    assert state["size"] == (2 if prefers_small else 50)


def test_networks_without_statistics_keep_their_state() -> None:
    found = built.of_nnx(OfNNX)(images(2), CLASSES, "none")
    assert found.usual.estimate is found.fast.estimate is found.narrow.estimate is keep
    assert settled(*found.usual, found.params, found.state, (images(4), None), 2) is found.state


def line(method: str, **values: Any) -> whole.Run:
    options = whole.arguments().parse_args(["--out", "", "--networks", "", "--methods", ""])
    measured = {"initial_loss": 2.3, "training_loss": 1.0, "finite": True, "seconds": 1.0}
    common = {**whole.settings(options, "VGG16", method, "sgd"), **measured}
    return {**common, "seed": 0, "rate": 0.1, "decay": 1e-3, "held_out": 1.0, **values}


@pytest.mark.parametrize("method", ["bn", "bn quiet", "mimicnorm", "call", "gn"])
def test_earlier_runs_match_a_new_command_without_batch_normalization_alone(method: str) -> None:
    new = line(method, test=50.0)
    earlier = {name: value for name, value in new.items() if name != "statistics"}
    has_statistics = method not in ("call", "gn")
    assert new["statistics"] == (ANEW if has_statistics else NONE)
    assert is_earlier(earlier) == has_statistics
    assert (whole.key_of(earlier) != whole.key_of(new)) == has_statistics


def test_a_table_has_one_kind_of_statistics_per_cell_and_says_which(tmp_path: Path) -> None:
    new, call = line("bn", test=60.0), line("call", test=55.0)
    earlier = {name: value for name, value in line("bn", test=50.0).items() if name != "statistics"}
    whole.append(tmp_path, [earlier, call])
    text = write_summary(tmp_path)
    assert "running statistics, of momentum 0.9 over 1,000 updates: bn in VGG16." in text
    assert "| call | 1 | +5.0" in text
    whole.append(tmp_path, [{**earlier, "rate": 0.3, "held_out": 99.0}, new])
    text = write_summary(tmp_path)
    assert "estimated anew" in text
    assert "running statistics" not in text
    assert "| call | 1 | -5.0" in text
    assert len(whole.read_runs(tmp_path)) == 4


def test_earlier_rows_of_the_ten_networks_are_kept_and_trained_anew(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "network,method,rate,seed,initial_loss,held_out,test,seconds\n"
        "VGG,batch normalization,0.1,0,2.3,97.1,90.5,9\nVGG,call,0.1,0,2.3,95,94.25,9\n"
    )
    runs = run.Runs(path)
    known = {"network": "VGG", "method": "batch normalization", "rate": 0.1, "seed": 0}
    assert runs.find(**known, statistics=ANEW) == []
    assert len(runs.find(network="VGG", method="call", rate=0.1, seed=0, statistics=NONE)) == 1
    assert "momentum 0.9, in VGG." in note_of(runs.rows)
    values = {"initial_loss": 2.3, "held_out": 96.0, "test": 93.0, "seconds": 9.0}
    runs.add({**known, **values, "statistics": ANEW})
    with path.open(newline="") as file:
        assert len({len(row) for row in csv.reader(file)}) == 1
    runs = run.Runs(path)
    assert len(runs.rows) == 3
    assert cells(runs.rows)["VGG"]["batch normalization"].test == [93.0]
    assert "estimated anew" in note_of(runs.rows)
    assert len(unmixed(runs.rows, ("network", "method"))) == 2
