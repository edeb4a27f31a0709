"""A trained network goes on without batch normalization: fine-tuning with two images per step.

    python -m examples.pretrained --out experiments/results/pretrained

A small residual network with batch normalization learns the digits 0 to 4 that scikit-learn ships,
64 images per step. Then it learns the digits 5 to 9 from 50 images, two per step, by each method of
`METHODS`: all parameters train, with a new classifier, the same for all. FOLDER gets runs.csv, a
line per method, rate and seed; the table, printed, has the rate of each method that is best on
held-out images, over all seeds.
"""

import argparse
import csv
import itertools
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxnorm as jn
from experiments.analysis.statistics import mean_and_interval

METHODS = ("kept", "frozen", "folded", "folded, normalizer-free", "folded, moving averages")
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
FEW, HELD_OUT, BATCH = 50, 200, 2

cross_entropy = optax.softmax_cross_entropy_with_integer_labels


class Block(nnx.Module):
    """Two convolutions with batch normalization, added to their input."""

    def __init__(self, width: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, width, width, (3, 3), use_bias=False, rngs=rngs)
        self.conv1, self.conv2 = conv(), conv()
        self.norm1, self.norm2 = (nnx.BatchNorm(width, rngs=rngs) for _ in range(2))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns activations of the same shape."""
        y = nnx.relu(self.norm1(self.conv1(x)))
        return nnx.relu(x + self.norm2(self.conv2(y)))


class Network(nnx.Module):
    """A stem, three residual blocks and a classifier."""

    def __init__(self, rngs: nnx.Rngs, width: int = 16, classes: int = 5):
        self.stem = nnx.Conv(1, width, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.blocks = nnx.List([Block(width, rngs) for _ in range(3)])
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the logits."""
        x = nnx.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class Rows(NamedTuple):
    """Images and labels of one task."""

    x: jax.Array
    y: jax.Array


@cache
def digits() -> Rows:
    """Returns the digits that scikit-learn ships, of mean 0 and variance 1."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = ((x - x.mean()) / x.std()).astype(np.float32).reshape(-1, 8, 8, 1)
    return Rows(jnp.asarray(x), jnp.asarray(y))


def tasks() -> tuple[Rows, Rows]:
    """Returns the digits 0 to 4 and the digits 5 to 9, as classes 0 to 4."""
    x, y = digits()
    return Rows(x[y < 5], y[y < 5]), Rows(x[y >= 5], y[y >= 5] - 5)


def fit(
    loss: Callable[..., Any], tx: Any, raw: Any, state: Any, rows: Rows, batches: jax.Array
) -> tuple[Any, Any]:
    """Returns parameters and the model's state after an update per row of ``batches``."""

    def step(carry: Any, batch: jax.Array) -> tuple[Any, None]:
        raw, state, opt_state = carry
        gradients, state = jax.grad(loss, has_aux=True)(raw, state, rows.x[batch], rows.y[batch])
        updates, opt_state = tx.update(gradients, opt_state, raw)
        return (optax.apply_updates(raw, updates), state, opt_state), None

    return jax.lax.scan(step, (raw, state, tx.init(raw)), batches)[0][:2]


def sgd(rate: Any, updates: int) -> optax.GradientTransformation:
    """Returns SGD with momentum, a warm-up over a tenth of the updates and a cosine."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, updates // 10, updates)
    return optax.sgd(lambda step: rate * schedule(step), momentum=0.9)


@cache
def pretraining(updates: int) -> Callable[..., Any]:
    """Returns a compiled function ``(params, state, batches)``: a training on the first task."""
    rows, _ = tasks()
    apply = jn.nnx.functionalize(Network(nnx.Rngs(0))).apply

    def loss(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        logits, state = apply(params, state, x, train=True)
        return cross_entropy(logits, y).mean(), state

    def train(params: Any, state: Any, batches: jax.Array) -> Any:
        return fit(loss, sgd(0.1, updates), params, state, rows, batches)

    return jax.jit(train)


def pretrained(seed: int, updates: int = 200) -> nnx.Module:
    """Returns a network that was trained on the first task, with statistics estimated anew."""
    rows, _ = tasks()
    model = Network(nnx.Rngs(seed))
    _, params, state = jn.nnx.functionalize(model)
    batches = jax.random.randint(jax.random.key(seed), (updates, 64), 0, len(rows.x))
    params, state = pretraining(updates)(params, state, batches)
    nnx.update(model, params, jn.nnx.estimate_statistics(model, params, state, rows.x))
    return model


def with_new_head(model: nnx.Module, seed: int) -> nnx.Module:
    """Returns the model with a random classifier."""
    model = nnx.clone(model)
    model.head = nnx.Linear(model.head.in_features, 5, rngs=nnx.Rngs(1000 + seed))
    return model


def split(seed: int) -> tuple[Rows, Rows, Rows]:
    """Returns few rows of the second task to train on, those held out, and those of the test."""
    rows = tasks()[1]
    order = np.random.default_rng(seed).permutation(len(rows.x))
    parts = np.split(order, (FEW, FEW + HELD_OUT))
    return tuple(Rows(rows.x[part], rows.y[part]) for part in parts)  # type: ignore[return-value]  # three


class Start(NamedTuple):
    """What a method trains: its loss, optimizer and parameters, and how these are evaluated."""

    loss: Callable[..., Any]
    tx: Any
    raw: Any
    evaluate: Callable[[Any, Any, jax.Array], jax.Array]


def start(method: str, apply: Any, params: Any, state: Any, optimizer: Any, x: jax.Array) -> Start:
    """Returns the start of one method from a trained network, folded or not.

    Args:
        method: one of `METHODS`.
        apply: as `jaxnorm.nnx.functionalize` returns it, of the folded model but for "kept" and
            "frozen".
        params: the trained parameters.
        state: the model's state.
        optimizer: an optax transformation.
        x: images of the second task, without labels.
    """

    def logits(params: Any, x: jax.Array) -> jax.Array:
        return apply(params, state, x, train=False)[0]

    def evaluate(raw: Any, state: Any, x: jax.Array) -> jax.Array:
        return apply(jn.effective(raw), state, x, train=False)[0]

    in_loss, raw, tx = logits, params, optimizer
    if method == "folded, normalizer-free":
        raw, tx = jn.normalizer_free(logits, params, optimizer, x, fitted=False)
    if method == "folded, moving averages":
        in_loss, raw, tx = jn.moving_average_normalization(
            logits, params, optimizer, x, fitted=False
        )

    def loss(raw: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        if method == "kept":
            output, state = apply(raw, state, x, train=True)
        else:
            output = in_loss(raw, x)
        return cross_entropy(output, y).mean(), state

    return Start(loss, tx, raw, evaluate)


def tuned(method: str, model: nnx.Module, updates: int) -> Callable[..., Any]:
    """Returns a compiled function ``(params, state, rate, batches, few, held_out, test)``.

    It returns the accuracies on the held-out rows and on those of the test.
    """
    apply = jn.nnx.functionalize(model).apply

    def run(params: Any, state: Any, rate: Any, batches: Any, few: Rows, *others: Rows) -> Any:
        made = start(method, apply, params, state, sgd(rate, updates), few.x)
        raw, state = fit(made.loss, made.tx, made.raw, state, few, batches)
        if method == "kept":
            state = jn.nnx.estimate_statistics(model, raw, state, few.x)
        guesses = [made.evaluate(raw, state, rows.x).argmax(-1) for rows in others]
        return [(guess == rows.y).mean() for guess, rows in zip(guesses, others, strict=True)]

    return jax.jit(run)


def runs(seeds: int, updates: int) -> list[dict[str, Any]]:
    """Returns the rows of runs.csv."""
    compiled, rows = {}, []
    for seed in range(seeds):
        model = with_new_head(pretrained(seed), seed)
        folded, remaining = jn.nnx.fold_batch_norm(model, tasks()[1].x[:1])
        assert not remaining
        parts = split(seed)
        batches = jax.random.randint(jax.random.key(seed), (updates, BATCH), 0, FEW)
        for method, rate in itertools.product(METHODS, RATES):
            source = folded if method.startswith("folded") else model
            if method not in compiled:
                compiled[method] = tuned(method, source, updates)
            _, params, state = jn.nnx.functionalize(source)
            scores = compiled[method](params, state, rate, batches, *parts)
            held_out, test = (round(100 * float(score), 2) for score in scores)
            rows.append(
                {"method": method, "rate": rate, "seed": seed, "held_out": held_out, "test": test}
            )
            print(*rows[-1].values(), flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table: the best rate of each method on held-out rows, over all seeds."""
    lines = ["| method | rate | test, % | less kept |", "|---|---:|---:|---:|"]
    best = {method: at_best_rate(rows, method) for method in METHODS}
    for method, (rate, scores) in best.items():
        difference = scores - best["kept"][1]
        less = "" if method == "kept" else mean_and_interval(difference, "+.1f")
        lines.append(
            f"| {method} | {rate} | {scores.mean():.1f} ± {scores.std(ddof=1):.1f} | {less} |"
        )
    return "\n".join(lines)


def at_best_rate(rows: list[dict[str, Any]], method: str) -> tuple[float, np.ndarray]:
    """Returns the best rate on held-out rows, and the test accuracies there, in order of seeds."""
    mine = [row for row in rows if row["method"] == method]
    rates = sorted({float(row["rate"]) for row in mine})
    at = {rate: [row for row in mine if float(row["rate"]) == rate] for rate in rates}
    rate = max(rates, key=lambda r: np.mean([float(row["held_out"]) for row in at[r]]))
    return rate, np.array([float(row["test"]) for row in at[rate]])


def main() -> None:
    """Trains all, writes the rows, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--updates", type=int, default=400)
    options = parser.parse_args()
    rows = runs(options.seeds, options.updates)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
