"""How the input means of the one call age: trainings of 5,000 updates with means of different age.

    python -m examples.networks.ageing --data FILE.npz --out FOLDER

A bottleneck ResNet on photographs of 8 x 8 pixels, AdamW and SGD, 64 rows per update and two. The
means are those of the start, measured every 500 or every 50 updates on 256 rows, or averaged at
every update. Each finished run is a line of FOLDER/runs.jsonl; what is there is not run again.
"""

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import jaxnorm as jn
from examples.networks.methods import Prepared, optimizer, prepare
from examples.networks.tasks import load_task
from examples.networks.training import Arrays, Split, order, score, standardized
from examples.networks.whole import append, read_runs

STEPS = 5000
#: Rows to train on, held out, and of the test.
ROWS = [20000, 500, 4000]
#: Rows of a rare measurement, and of the fitted start.
MEASURED = 256


class Setting(NamedTuple):
    """An optimizer with its rate and decay, and the rows of an update."""

    optimizer: str
    batch: int
    rate: float
    decay: float


SETTINGS = (
    Setting("adamw", 64, 0.003, 0.1),
    Setting("sgd", 64, 0.1, 1e-3),
    Setting("adamw", 2, 0.001, 0.1),
    Setting("sgd", 2, 0.01, 1e-3),
)

#: Updates between two measurements, 0 for none.
AGES = {"fixed": 0, "averaged": 1, "50": 50, "500": 500}


class Programs(NamedTuple):
    """The compiled parts of a training.

    Attributes:
        start: ``start(seed) -> raw``.
        init: ``init(raw) -> opt_state``.
        step: ``step(raw, opt_state, x, y) -> (raw, opt_state, loss)``.
        refresh: ``refresh(opt_state, raw, x, decay) -> opt_state``.
        score: ``score(raw, rows) -> accuracy``.
    """

    start: Callable[[int], Any]
    init: Callable[[Any], Any]
    step: Callable[..., Any]
    refresh: Callable[..., Any]
    score: Callable[..., jax.Array]


def programs(
    prepared: Prepared, setting: Setting, split: Split, classes: int, steps: int = STEPS
) -> Programs:
    """Returns the parts of a training, compiled once for all ages and seeds."""
    built = prepared.built
    make = lambda seed: prepared.start(  # noqa: E731
        seed, optimizer(setting.optimizer, setting.rate, setting.decay, steps, True)
    )
    _, tx = make(0)

    def logits(raw: Any, x: Any, train: bool) -> jax.Array:
        return built.fast.apply(prepared.plain(raw), built.state, x, train=train)[0]

    @jax.jit
    def step(raw: Any, opt_state: Any, x: Any, y: Any) -> Any:
        def loss_of(raw: Any) -> jax.Array:
            losses = optax.softmax_cross_entropy_with_integer_labels(logits(raw, x, True), y)
            return losses.mean()

        value, gradient = jax.value_and_grad(loss_of)(raw)
        updates, opt_state = tx.update(gradient, opt_state, raw)
        return optax.apply_updates(raw, updates), opt_state, value

    @jax.jit
    def refresh(opt_state: Any, raw: Any, x: Any, decay: Any) -> Any:
        return jn.refresh_input_means(jn.read(built.logits, raw, x), opt_state, decay=decay)

    @jax.jit
    def score_of(raw: Any, rows: Arrays) -> jax.Array:
        return score(lambda x: logits(raw, standardized(x, split), False), rows, classes)

    return Programs(lambda seed: make(seed)[0], tx.init, step, refresh, score_of)


def train(
    parts: Programs, split: Split, setting: Setting, every: int, seed: int, steps: int = STEPS
) -> dict[str, Any]:
    """Returns the losses' summary and the scores of a training."""
    x, y = np.asarray(standardized(split.train.x, split)), np.asarray(split.train.y)
    kept = 0.0 if every > 1 else 0.9 if setting.batch > 2 else 0.99
    raw = parts.start(seed)
    opt_state, losses = parts.init(raw), []
    for i, rows in enumerate(np.asarray(order(seed, len(x), steps, setting.batch))):
        if every and i and i % every == 0:
            draw = np.random.default_rng(i).integers(0, len(x), MEASURED)
            opt_state = parts.refresh(opt_state, raw, x[rows if every == 1 else draw], kept)
        raw, opt_state, loss = parts.step(raw, opt_state, x[rows], y[rows])
        losses.append(loss)
    values = np.array([float(loss) for loss in losses])

    return {
        "training_loss": round(float(values[-steps // 20 :].mean()), 4),
        "largest_loss": round(float(values.max()), 2),
        "held_out": round(100 * float(parts.score(raw, split.held_out)), 2),
        "test": round(100 * float(parts.score(raw, split.test)), 2),
    }


def main() -> None:
    """Trains what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="FILE.npz of photographs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", type=int, nargs="+", default=range(len(SETTINGS)))
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names = ("optimizer", "batch", "age", "seed")
    finished = {tuple(run[name] for name in names) for run in read_runs(options.out)}
    split, classes = load_task("photographs", options.data, 8, ROWS)
    fitted_on = standardized(split.train.x[:MEASURED], split)
    prepared = prepare("call", "bottleneck ResNet", fitted_on[:2], classes, fitted_on)
    for setting in (SETTINGS[i] for i in options.settings):
        parts = programs(prepared, setting, split, classes)
        for seed, age in itertools.product(range(options.seeds), AGES):
            if (setting.optimizer, setting.batch, age, seed) in finished:
                continue
            run = {**setting._asdict(), "age": age, "seed": seed}
            run |= train(parts, split, setting, AGES[age], seed)
            append(options.out, [run])
            print(run, flush=True)


if __name__ == "__main__":
    main()
