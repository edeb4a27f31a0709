"""Ten networks of other people, with batch normalization, without it, and with one call instead.

    python -m examples.networks.run --out FOLDER

Every network is trained by SGD with momentum 0.9, or by AdamW, for the same number of updates: with
batch normalization, with batch normalization deleted and nothing else changed, and with
`jaxnorm.normalizer_free` in its place. The rate of each is chosen from the same rates, by the
accuracy on held-out rows under the first seed, and trained under the other seeds too. FOLDER gets
runs.csv with one line per run, from which a second call goes on, table.md and table.png. Batch
normalization is scored with statistics of training rows under the final parameters, estimated anew;
earlier runs by running statistics stay in runs.csv, and are trained anew.

The data are the digits of scikit-learn, or FILE.npz after --data, with X_train, y_train, X_test and
y_test: images and whole numbers.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxnorm as jn
from examples.networks.earlier import of_earlier, of_new
from examples.networks.kernels import is_kernel
from examples.networks.report import best_rate, write_report
from examples.networks.statistics import ROWS, settled
from examples.networks.ten import NETWORKS, Network

BATCH = 64
METHODS = ("batch normalization", "deleted", "call")
NUMBERS = ("rate", "seed", "initial_loss", "held_out", "test", "seconds")
FIELDS = ("network", "method", *NUMBERS, "statistics")


class Rows(NamedTuple):
    """Images and labels."""

    x: jax.Array
    y: jax.Array


class Data(NamedTuple):
    """Rows to train on, to choose the rate by, and to report."""

    train: Rows
    held_out: Rows
    test: Rows
    classes: int


def load(path: Path | None, side: int, numbers: tuple[int, int, int]) -> Data:
    """Returns standardized images of ``side`` pixels, and as many rows of each part."""
    if path is None:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(x))
        x, y = x.reshape(-1, 8, 8, 1)[order], y[order]
        numbers = (1000, 247, 550)
    else:
        arrays = np.load(path)
        order = np.random.default_rng(0).permutation(len(arrays["X_train"]))[: sum(numbers[:2])]
        tested = np.random.default_rng(1).permutation(len(arrays["X_test"]))[: numbers[2]]
        x = np.concatenate([arrays["X_train"][order], arrays["X_test"][tested]])
        y = np.concatenate([arrays["y_train"][order], arrays["y_test"][tested]])
    pooled = x.shape[1] // min(side, x.shape[1])
    x = x.reshape(len(x), x.shape[1] // pooled, pooled, x.shape[2] // pooled, pooled, -1)
    x = x.mean((2, 4))
    train = x[: numbers[0]]
    x = ((x - train.mean((0, 1, 2))) / train.std((0, 1, 2))).astype(np.float32)
    ends = np.cumsum((0, *numbers))
    parts = (Rows(jnp.asarray(x[a:b]), jnp.asarray(y[a:b], jnp.int32)) for a, b in pairwise(ends))
    return Data(*parts, classes=int(y.max()) + 1)


def optimizer(name: str, steps: int) -> optax.GradientTransformation:
    """Returns SGD with momentum or AdamW, with warm-up, cosine, clipping per layer and decay.

    Its rate is 1: the updates of both are in proportion to the rate.
    """
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, steps // 10, steps)
    clipping = jn.clip_by_layer_norm(1.0)
    if name == "adamw":
        return optax.chain(clipping, optax.adamw(schedule, weight_decay=1e-2, mask=is_kernel))
    decay = optax.add_decayed_weights(1e-3, mask=is_kernel)
    return optax.chain(clipping, decay, optax.sgd(schedule, momentum=0.9))


class Method(NamedTuple):
    """A network as a method trains it.

    Attributes:
        raw: the initial parameters.
        tx: the optimizer.
    """

    raw: Any
    tx: optax.GradientTransformation


def method_of(
    name: str, network: Network, optimizer: optax.GradientTransformation, x: jax.Array
) -> Method:
    """Returns what the call makes of a network and an optimizer, or both as they are."""
    if name != "call":
        return Method(network.params, optimizer)
    return Method(*jn.normalizer_free(network.logits, network.params, optimizer, x))


class Training(NamedTuple):
    """The functions of a network and a method, for any rate and seed."""

    step: Callable[..., Any]
    settle: Callable[..., Any]
    accuracy: Callable[..., jax.Array]


def make_training(network: Network, tx: optax.GradientTransformation) -> Training:
    """Returns the step and the accuracy; what is measured under a seed is in the states."""

    @jax.jit
    def step(raw: Any, state: Any, opt_state: Any, rate: Any, x: Any, y: Any) -> Any:
        def loss(raw: Any) -> Any:
            logits, after = network.apply(jn.effective(raw), state, x, train=True)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), after

        (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(raw)
        updates, opt_state = tx.update(gradient, opt_state, raw)
        updates = jax.tree.map(lambda update: rate * update, updates)
        return optax.apply_updates(raw, updates), state, opt_state, value

    @jax.jit
    def settle(raw: Any, state: Any, rows: Any) -> Any:
        return settled(network.apply, network.estimate, jn.effective(raw), state, rows, BATCH)

    @jax.jit
    def accuracy(raw: Any, state: Any, x: Any, y: Any) -> jax.Array:
        logits, _ = network.apply(jn.effective(raw), state, x, train=False)
        return (logits.argmax(-1) == y).mean()

    return Training(step, settle, accuracy)


def batches(rows: Rows, steps: int, seed: int) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yields ``steps`` batches, epoch by epoch."""
    draw, order = np.random.default_rng(seed), np.empty(0, int)
    for _ in range(steps):
        if len(order) < BATCH:
            order = draw.permutation(len(rows.x))
        yield rows.x[order[:BATCH]], rows.y[order[:BATCH]]
        order = order[BATCH:]


def train(
    training: Training,
    network: Network,
    method: Method,
    rate: float,
    steps: int,
    seed: int,
    data: Data,
) -> dict[str, float]:
    """Returns the initial loss, and the accuracies in per cent."""
    begin, losses, state = time.perf_counter(), [], network.state
    raw, opt_state = method.raw, method.tx.init(method.raw)
    for x, y in batches(data.train, steps, seed):
        raw, state, opt_state, loss = training.step(raw, state, opt_state, jnp.float32(rate), x, y)
        losses.append(loss)
    state = training.settle(raw, state, tuple(part[:ROWS] for part in data.train))
    held_out, test = (
        100 * float(training.accuracy(raw, state, *rows)) for rows in (data.held_out, data.test)
    )
    return {
        "initial_loss": float(losses[0]),
        "held_out": held_out,
        "test": test,
        "seconds": time.perf_counter() - begin,
    }


class Runs:
    """The finished runs, one line each in a csv file."""

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            for row in rows:
                numbers = {name: float(row[name]) for name in NUMBERS}
                known = {"statistics": of_earlier(row["method"]), **row}
                self.rows.append({**known, **numbers, "seed": int(row["seed"])})
            if rows and "statistics" not in rows[0]:
                self._write(self.rows, "w")

    def find(self, **wanted: Any) -> list[dict[str, Any]]:
        """Returns the runs that agree with ``wanted``."""
        return [row for row in self.rows if all(row[key] == wanted[key] for key in wanted)]

    def add(self, row: dict[str, Any]) -> None:
        """Appends a run to the file."""
        self.rows.append(row)
        self._write([row], "a" if self.path.exists() else "w")

    def _write(self, rows: list[dict[str, Any]], mode: str) -> None:
        with self.path.open(mode, newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if mode == "w":
                writer.writeheader()
            for row in rows:
                shown = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()}
                writer.writerow(shown)


def run_network(
    name: str, method: str, data: Data, runs: Runs, options: argparse.Namespace
) -> None:
    """Trains a network by a method: at all rates under one seed, at the best under the others."""
    training: list[Training] = []
    known = {"network": name, "method": method, "statistics": of_new(method)}

    def run(seed: int, rate: float) -> None:
        if runs.find(**known, seed=seed, rate=rate):
            return
        build, sample = NETWORKS[name].build, data.train.x[:256]
        network = build(seed, sample, data.classes, method == "batch normalization")
        prepared = method_of(method, network, optimizer(options.optimizer, options.steps), sample)
        if not training:
            training.append(make_training(network, prepared.tx))
        result = train(training[0], network, prepared, rate, options.steps, seed, data)
        runs.add({**known, "rate": rate, "seed": seed, **result})
        print(name, method, rate, seed, *(f"{v:.2f}" for v in result.values()), flush=True)

    for rate in options.rates:
        run(0, rate)
    best = best_rate(runs.find(**known))
    for seed in range(1, options.seeds):
        run(seed, best)


def main() -> None:
    """Trains what is missing, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="FILE.npz; the digits of scikit-learn without it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--optimizer", default="sgd", choices=["sgd", "adamw"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.03, 0.1, 0.3])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--rows", type=int, nargs=3, default=[6000, 1000, 2000])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data, runs = (
        load(options.data, options.side, tuple(options.rows)),
        Runs(options.out / "runs.csv"),
    )
    for name in options.networks:
        for method in options.methods:
            run_network(name, method, data, runs, options)
            jax.clear_caches()
    write_report(runs.rows, options.out, data.classes)


if __name__ == "__main__":
    main()
