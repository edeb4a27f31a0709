"""What one waits for before the first step: imports and compilation."""

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.bench.step import BASELINE, CONTROL, config_of, random_batch, trainer_of
from experiments.bench.table import Measured
from experiments.bench.timing import ratio, times_in_turn
from experiments.methods.method import Method
from experiments.methods.table import METHODS, find_methods
from experiments.training.ahead_of_time import AheadOfTime

#: What a fresh Python imports; the first is what a script that trains has anyway.
IMPORTS = ("jax, optax", "jax, optax, jaxnorm", "jax, optax, flax.nnx", "jax, optax, jaxnorm.nnx")
#: Fresh processes and compilations take seconds each.
MOST = 5
COLUMNS = ("what", "seconds", "ratio", "ratio_low", "ratio_high")


def bench_start(flags: Any) -> Measured:
    """Seconds to import the library, and to compile a step of each method."""
    repeats = min(flags.repeats, MOST)
    rows = _rows({f"import {names}": partial(_import, names) for names in IMPORTS}, repeats)
    methods = {BASELINE: METHODS[BASELINE], CONTROL: METHODS[BASELINE]}
    methods |= {method.name: method for method in find_methods(flags.methods)}
    steps = {f"compile {name}": _compilation(each, flags) for name, each in methods.items()}
    rows += _rows(steps, repeats)
    return Measured(COLUMNS, rows, f"A step of {flags.model}, traced and compiled.")


def _import(names: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {names}"], check=True)


def _compilation(method: Method, flags: Any) -> Callable[[], None]:
    """A call that traces and compiles the method's step, with nothing kept from the last one."""
    batch = random_batch(flags.batch_size, flags.model)
    trainer = trainer_of(method, config_of(flags), batch)
    state = trainer.init(np.uint32(0), np.asarray(batch.X))

    def compile_step() -> None:
        jax.clear_caches()
        AheadOfTime(trainer.step, donate_argnums=0).compile(state, batch)

    return compile_step


def _rows(subjects: Mapping[str, Callable[[], object]], repeats: int) -> list[tuple[Any, ...]]:
    times = times_in_turn(subjects, repeats)
    base = times[next(iter(subjects))]
    return [(n, 1e-3 * statistics.median(t), *ratio(t, base)) for n, t in times.items()]
