"""The shift of the best learning rate with the width and the depth of the transformer.

``python -m experiments.analysis.tuning.transfer --help``. Each network is trained for one epoch at
every rate; what counts is the loss of the last quarter of its steps, on rows that it sees for the
first time.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import tyro
from jaxtyping import Array, Float

from experiments.analysis.csv import write_csv
from experiments.analysis.statistics import mean_and_deviation
from experiments.analysis.table import Table, markdown, provenance
from experiments.config import Config
from experiments.data.bundled import load_characters
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.methods.table import find_methods
from experiments.runs.files import prepare_folder, write_whole
from experiments.training.epoch import batch_at, batch_order
from experiments.training.fit import start
from experiments.training.state import TrainState
from experiments.training.trainer import make_trainer

SIZES = "2x32,2x64,2x128,2x256,4x32,8x32,16x32"


class Trial(NamedTuple):
    """One training: ``size`` is depth x width, ``octave`` the base-2 logarithm of its rate."""

    method: str
    size: str
    steps: int
    batch_size: int
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
        """Trains what is not in rates.csv yet, and writes the table of all with these steps."""
        path, (first, last) = prepare_folder(self.out) / "rates.csv", self.octaves
        trials = read(path)
        known, octaves = {trial[:-1] for trial in trials}, range(first, last + 1)
        grid = itertools.product(find_methods(self.methods), self.sizes.split(","), octaves)
        for method, size, octave in grid:
            length = self.steps, self.batch_size
            names = [(method.name, size, *length, seed, octave) for seed in range(self.seeds)]
            if missing := [name for name in names if name not in known]:
                train = self.training(method, size, octave)
                trials += [Trial(*name, train(name[-2])) for name in missing]
                write_csv(path, Trial._fields, trials)
        shown = [t for t in trials if (t.steps, t.batch_size) == (self.steps, self.batch_size)]
        page = f"{markdown(table(shown))}\n\n{provenance(command)}"
        write_whole(self.out / "table.md", page)
        print(page)

    def training(self, method: Method, size: str, octave: int) -> Callable[[int], float]:
        """Returns a function from a seed to the mean loss of the last quarter of the steps."""
        if method.refreshes():
            raise UserError(
                f"{method.name} renews statistics between its steps, which this command leaves "
                "out; wanted methods without that: take it out of --methods."
            )
        depth, width = map(int, size.split("x"))
        sizes = Config(model="transformer", depth=depth, width=width, batch_size=self.batch_size)
        config = sizes.changed(optimizer="adam", epochs=1, learning_rate=2.0**octave)
        data, rows = load_characters(0), self.steps * self.batch_size
        data = data._replace(X_train=data.X_train[:rows], y_train=data.y_train[:rows])
        X, y = jnp.asarray(data.X_train), jnp.asarray(data.y_train)
        trainer = make_trainer(method, config, data)

        @jax.jit
        def final_loss(state: TrainState) -> Float[Array, ""]:
            order = batch_order(state, rows, self.batch_size)

            def body(state: TrainState, index: Array) -> tuple[TrainState, Array]:
                state, metrics = trainer.step(state, batch_at(state, X, y, order, index))
                return state, metrics.loss

            losses = jax.lax.scan(body, state, jnp.arange(self.steps))[1]
            return losses[-max(1, self.steps // 4) :].mean()

        return lambda seed: round(float(final_loss(start(trainer, seed, data.X_train))), 5)


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
    losses = pl.DataFrame(trials, Trial._fields, orient="row")
    header = ("method", "size", "best rate, log2", "loss at it", "loss at the first size's")
    rows, first = [], dict[str, int]()
    for (method, size), runs in losses.group_by("method", "size", maintain_order=True):
        by_octave = runs.pivot("seed", index="octave", values="loss").drop_nulls().sort("octave")
        octaves = by_octave["octave"].to_list()
        values = by_octave.drop("octave").to_numpy().T
        first.setdefault(method, octaves[int(np.nanargmin(values.mean(0)))])
        at_first = values[:, octaves.index(first[method])]
        best = [best_octave(own, octaves) for own in values]
        columns = ((best, ".1f"), (list(values.min(1)), ".3f"), (list(at_first), ".3f"))
        cells = (mean_and_deviation(*column) for column in columns)
        rows.append((method, size, *cells))
    return header, rows


def read(path: Path) -> list[Trial]:
    """Returns the trials of an earlier call.

    Raises:
        UserError: for a file of an earlier version, which does not say how long a trial was.
    """
    if not path.exists():
        return []
    rows = pl.read_csv(path)
    if missing := [name for name in Trial._fields if name not in rows.columns]:
        raise UserError(
            f"{path} has no column {missing[0]}; wanted {', '.join(Trial._fields)}, as this "
            "version writes them: take another --out."
        )
    return [Trial(*row) for row in rows.select(Trial._fields).iter_rows()]


if __name__ == "__main__":
    import shlex
    import sys

    arguments = shlex.join(sys.argv[1:])
    tyro.cli(Transfer).run(f"python -m experiments.analysis.tuning.transfer {arguments}".strip())
