"""Trainings of the probe, one line of a csv file per finished run.

    python -m examples.keeping.probe --data FILE.npz --out ROWS.csv [--stages NAME ...]

`examples/networks/photographs.py` makes FILE.npz; `stages.py` lists the runs, in the order of
`experiments/results/keeping/PLAN.md`. Runs that ROWS.csv has are not run again.
"""

import argparse
import csv
import subprocess
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from examples.keeping.networks import NETWORKS
from examples.keeping.rows import Split, load_photographs, order, score, standardized
from examples.keeping.stages import STAGES, VARIANTS, Run
from examples.keeping.variants import Training, estimated_anew, make_training, step

#: Photographs to train on, to choose by and to report.
ROWS = (20_000, 2_000, 5_000)

#: Rows to which the start is fitted.
FITTED = 256

#: Batches and rows of each from which statistics are estimated anew, the first training rows.
ANEW = (8, 256)

#: Updates of a compiled program; the call's input means are renewed before each.
CHUNK = 10

#: Settings that tell runs apart, and what a line has beside them.
KEYS = Run._fields
FIELDS = (
    *KEYS,
    "decay",
    "test",
    "held_out",
    "held_out_anew",
    "held_out_running",
    "training_loss",
    "relative_step",
    "finite",
    "seconds",
    "commit",
)


def key_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Returns what tells a run apart."""
    return tuple(str(row[name]) for name in KEYS)


def finished(path: Path) -> set[tuple[str, ...]]:
    """Returns the keys of the runs of a file."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {key_of(row) for row in csv.DictReader(file)}


def append(path: Path, row: dict[str, Any]) -> None:
    """Adds a line."""
    is_new = not path.exists()
    rounded = {
        k: f"{v:.5g}" if isinstance(v, float) and k not in KEYS else v for k, v in row.items()
    }
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(rounded)


def commit() -> str:
    """Returns the commit of the code, with a plus sign if the working tree differs."""
    run = lambda *words: subprocess.run(words, capture_output=True, text=True).stdout  # noqa: E731
    changed = run("git", "status", "--porcelain", "--", "examples", "jaxnorm").strip()
    return run("git", "rev-parse", "--short=8", "HEAD").strip() + ("+" if changed else "")


def schedule(rate: float, updates: int, warmup: bool) -> np.ndarray:
    """Returns the rates of all updates: a cosine to 0, after a tenth of warm-up or at once."""
    factor = (
        optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, updates // 10), updates)
        if warmup
        else optax.cosine_decay_schedule(1.0, updates)
    )
    return np.asarray(rate * jax.vmap(factor)(jnp.arange(updates)), np.float32)


class Program:
    """Compiled functions of a network and a variant, for all rates and seeds."""

    def __init__(self, network: str, variant: str, split: Split):
        self.network, self.split = NETWORKS[network], split
        self.fitted_on = standardized(split.train.x[:FITTED], split)
        self.variant = VARIANTS[variant]
        self.training = make_training(self.network, self.variant, self.fitted_on)
        # What the call does at the start compiles for minutes as one program.
        is_call = self.variant.is_call
        self.start = self.training.start if is_call else jax.jit(self.training.start)
        self.renewed = jax.jit(self._renewed, donate_argnums=1)
        self.updates = jax.jit(self._updates, donate_argnums=1)
        self.score = jax.jit(self._score)
        self.anew = jax.jit(self._anew)

    def _updates(self, split: Split, carry: Any, inputs: Any) -> Any:
        training: Training = self.training

        def one(carry: Any, inputs: Any) -> Any:
            t, rate, rows = inputs
            x = standardized(split.train.x[rows], split)
            return step(training, t, rate, carry, x, split.train.y[rows])

        return jax.lax.scan(one, carry, inputs)

    def _renewed(self, split: Split, carry: Any, rows: jax.Array) -> Any:
        params, memory, opt_state = carry
        x = standardized(split.train.x[rows], split)
        return params, memory, self.training.renewed(opt_state, params, memory, x)

    def _score(self, split: Split, params: Any, rows: Any) -> jax.Array:
        logits_of = lambda x: self.training.logits(params, standardized(x, split))  # noqa: E731
        return 100 * score(logits_of, rows)

    def _anew(self, split: Split, params: Any) -> Any:
        x = split.train.x[: ANEW[0] * ANEW[1]].reshape(*ANEW, *split.train.x.shape[1:])
        return estimated_anew(self.network, params, standardized(x, split))

    def train(self, run: Run) -> tuple[Any, np.ndarray]:
        """Returns parameters and memory, and the losses and relative steps until one is NaN."""
        carry = self.start(run.seed, self.fitted_on)
        rows = order(run.seed, len(self.split.train.x), run.updates, run.batch)
        rates, logs = schedule(run.rate, run.updates, run.warmup), []
        for begin in range(0, run.updates, CHUNK):
            part = slice(begin, min(begin + CHUNK, run.updates))
            inputs = (jnp.arange(part.start, part.stop), jnp.asarray(rates[part]), rows[part])
            carry = self.renewed(self.split, carry, rows[begin])
            carry, log = self.updates(self.split, carry, inputs)
            logs.append(np.stack(log, axis=1))
            if not np.isfinite(logs[-1]).all():
                break
        return carry[:2], np.concatenate(logs)

    def measured(self, run: Run) -> dict[str, Any]:
        """Returns the results of a run.

        Batch normalization is scored with statistics estimated anew, all others as they are.
        """
        begin = time.perf_counter()
        (params, memory), log = self.train(run)
        last = log[-max(1, run.updates // 20) :].mean(0)
        result = {
            "decay": "" if self.variant.is_call else self.variant.decay,
            "training_loss": float(last[0]),
            "relative_step": float(log[:, 1].mean()),
            "finite": bool(np.isfinite(log).all()),
            **self.scores(params, memory),
        }
        return {**result, "seconds": time.perf_counter() - begin}

    def scores(self, params: Any, memory: Any) -> dict[str, float]:
        """Returns the accuracies in per cent."""
        parts = {"running": self.training.plain_params(params, memory)}
        if not self.variant.is_call and not self.variant.has_zero_sums:
            anew = self.anew(self.split, params)
            parts["anew"] = self.training.plain_params(params, anew)
        on = lambda part, rows: float(self.score(self.split, parts[part], rows))  # noqa: E731
        chosen = "anew" if self.variant.settings is None and "anew" in parts else "running"
        held_out = {f"held_out_{part}": on(part, self.split.held_out) for part in parts}
        test = on(chosen, self.split.test)
        return {"test": test, "held_out": held_out[f"held_out_{chosen}"], **held_out}


def main() -> None:
    """Runs what is missing, stage by stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="FILE.npz of photographs")
    parser.add_argument("--out", type=Path, required=True, help="ROWS.csv")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    options = parser.parse_args()
    split = load_photographs(options.data, 16, ROWS)
    split, code = jax.device_put(split), commit()
    program, of = None, ()
    for run in (run for stage in options.stages for run in STAGES[stage]):
        if key_of(run._asdict()) in finished(options.out):
            continue
        if of != (run.network, run.variant, run.batch):
            jax.clear_caches()
            program, of = Program(run.network, run.variant, split), (*run[:2], run.batch)
        assert program is not None
        row = {**run._asdict(), **program.measured(run), "commit": code}
        append(options.out, row)
        print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
