"""The shift of the best learning rate with the width and the depth of the transformer.

``python -m experiments.analysis.tuning.transfer --help``. Each network is trained for one epoch at
every rate; what counts is the loss of the last quarter of its steps, on rows that it sees for the
first time. All rates of a network are one compiled program.
"""

import csv
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import nnx
from jaxtyping import Array, Float

from experiments.analysis.statistics import mean_and_deviation
from experiments.analysis.table import Table, markdown, provenance
from experiments.config import Config
from experiments.data.bundled import load_characters
from experiments.methods.method import Method
from experiments.methods.optimizer import schedule_of, scheduled_optimizer
from experiments.methods.table import find_methods
from experiments.training.epoch import batch_at, batch_order
from experiments.training.state import TrainState
from experiments.training.step import make_step
from experiments.training.trainer import make_context, make_init, network_of

SIZES = "2x32,2x64,2x128,2x256,4x32,8x32,16x32"


class Trial(NamedTuple):
    """One training: ``size`` is depth x width, ``octave`` the base-2 logarithm of its rate."""

    method: str
    size: str
    seed: int
    octave: int
    loss: float


@dataclass(frozen=True)
class Transfer:
    """Train transformers of several sizes at several learning rates, which are powers of two."""

    methods: str = "cwo-centre-sphere,cwo-angle"
    """Methods, comma-separated."""
    sizes: str = SIZES
    """Depths x widths, comma-separated."""
    octaves: Annotated[tuple[int, int], tyro.conf.arg(metavar="FIRST LAST")] = (-8, -3)
    """The base-2 logarithms of the smallest and the largest rate."""
    seeds: int = 2
    """The number of seeds."""
    steps: int = 64
    """The steps of each training; half a cosine takes the rate to 0."""
    batch_size: int = 8
    """The rows of a step, of 64 characters each."""
    out: Path = Path("results/angle")
    """The folder of rates.csv and table.md. What is in rates.csv is not trained again."""

    def run(self, command: str) -> None:
        """Trains what is not in rates.csv yet, and writes the table of all that is."""
        self.out.mkdir(parents=True, exist_ok=True)
        path, trials = self.out / "rates.csv", read(self.out / "rates.csv")
        methods, sizes = find_methods(self.methods), self.sizes.split(",")
        octaves = range(self.octaves[0], self.octaves[1] + 1)
        for seed, method, size in itertools.product(range(self.seeds), methods, sizes):
            known = {trial.octave for trial in trials if trial[:3] == (method.name, size, seed)}
            if missing := [octave for octave in octaves if octave not in known]:
                trials += self.trials(method, size, seed, missing)
                write(path, trials)
        page = f"{markdown(table(trials))}\n\n{provenance(command)}"
        (self.out / "table.md").write_text(page, encoding="utf-8")
        print(page)

    def trials(self, method: Method, size: str, seed: int, octaves: Sequence[int]) -> list[Trial]:
        """The trainings of a method and a size under a seed, at some rates."""
        depth, width = map(int, size.split("x"))
        config = Config(
            model="transformer",
            depth=depth,
            width=width,
            optimizer="adam",
            batch_size=self.batch_size,
        )
        rates = [2.0**octave for octave in octaves]
        losses = final_losses(method, config, self.steps, seed, rates, max(1, self.steps // 4))
        return [
            Trial(method.name, size, seed, octave, round(float(loss), 5))
            for octave, loss in zip(octaves, losses, strict=True)
        ]


def final_losses(
    method: Method, config: Config, steps: int, seed: int, rates: Sequence[float], last: int
) -> Float[Array, " rates"]:
    """The mean loss of the last steps of the training at each rate."""
    dataset = load_characters(0)
    X, y = (x[: steps * config.batch_size] for x in (dataset.X_train, dataset.y_train))
    shape = X.shape[1:]
    network = partial(network_of, method, config, shape, dataset.num_classes)
    model = nnx.eval_shape(lambda: network(jax.random.key(0)))
    context = make_context(method, model, config, shape)

    unscaled = schedule_of(config.changed(learning_rate=1.0), steps)

    def train(rate: Float[Array, ""]) -> Float[Array, ""]:
        optimizer = scheduled_optimizer(
            method, config, lambda count: rate * unscaled(count), context
        )
        step = make_step(method, context, optimizer, config)
        state = make_init(method, context, network, lambda seed: optimizer)(
            jnp.uint32(seed), jnp.asarray(X)
        )
        order = batch_order(state, len(X), config.batch_size)
        rows = jnp.asarray(X), jnp.asarray(y), order

        def body(state: TrainState, index: Array) -> tuple[TrainState, Array]:
            state, metrics = step(state, batch_at(state, *rows, index))
            return state, metrics.loss

        losses = jax.lax.scan(body, state, jnp.arange(steps))[1]
        return losses[-last:].mean()

    return jax.jit(lambda rates: jax.lax.map(train, rates))(jnp.asarray(rates, jnp.float32))


def best_octave(losses: Float[np.ndarray, " rates"], octaves: Sequence[int]) -> float:
    """The lowest point of the parabola through the best rate and its two neighbours.

    At an end of the grid the end itself.
    """
    at = int(np.nanargmin(losses))
    if at in (0, len(losses) - 1):
        return float(octaves[at])
    left, best, right = losses[at - 1 : at + 2]
    if not np.isfinite([left, right]).all():
        return float(octaves[at])
    return octaves[at] + 0.5 * float(left - right) / float(left - 2 * best + right)


def table(trials: Iterable[Trial]) -> Table:
    """By method and size: the best rate, its loss, and the loss at the first size's best rate."""
    losses: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
    for trial in trials:
        seeds = losses.setdefault((trial.method, trial.size), {})
        seeds.setdefault(trial.seed, {})[trial.octave] = trial.loss
    header = ("method", "size", "best rate, log2", "loss at it", "loss at the first size's")
    rows, first = [], dict[str, int]()
    for (method, size), seeds in losses.items():
        octaves = sorted(set.intersection(*map(set, seeds.values())))
        values = np.array([[own[octave] for octave in octaves] for own in seeds.values()])
        first.setdefault(method, octaves[int(np.nanargmin(values.mean(0)))])
        at_first = values[:, octaves.index(first[method])]
        best = [best_octave(own, octaves) for own in values]
        columns = ((best, ".1f"), (list(values.min(1)), ".3f"), (list(at_first), ".3f"))
        cells = (mean_and_deviation(*column) for column in columns)
        rows.append((method, size, *cells))
    return header, rows


def read(path: Path) -> list[Trial]:
    """The trials of an earlier call."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Trial(row["method"], row["size"], int(row["seed"]), int(row["octave"]), float(row["loss"]))
        for row in rows
    ]


def write(path: Path, trials: Iterable[Trial]) -> None:
    """The trials as a file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([Trial._fields, *trials])


if __name__ == "__main__":
    import shlex
    import sys

    arguments = shlex.join(sys.argv[1:])
    tyro.cli(Transfer).run(f"python -m experiments.analysis.tuning.transfer {arguments}".strip())
