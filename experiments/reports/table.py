"""The table of a comparison: mean and spread over seeds, and where the numbers come from."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

import jaxnorm
from experiments.reports.tpu import Cost
from experiments.runs.spec import own_settings, shown
from experiments.training.fit import AT_CHANCE, DIVERGED, Run

#: A header and rows of text.
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


#: The spread of step times, over their mean, from which on a busy machine is what they tell of.
STEADY = 0.1

NO_COSTS: Mapping[str, Cost] = MappingProxyType({})


def comparison_table(runs: Sequence[Run], costs: Mapping[str, Cost] = NO_COSTS) -> Table:
    """One row a method: mean ± standard deviation over its seeds, accuracies in percent.

    The differences are of test accuracies, from the first method's under the same seeds, in points;
    one method has none. What a step costs on a TPU is there where it is known, and else what it
    takes here, if the times are steady. Settings that runs have of their own are in the last
    columns, a value for each seed.
    """
    own = own_settings(run.changes for run in runs)
    methods = list(dict.fromkeys(run.method for run in runs))
    grouped = [[run for run in runs if run.method == method] for method in methods]
    several = len(methods) > 1
    known = any(method in costs for method in methods)
    timed = not known and all(map(_is_steady, grouped))
    header = ["method", "test, %", *["difference"] * several, "test loss", "train, %"]
    header += ["step, ms"] * timed + ["TPU bytes", "waits"] * known
    rows = []
    for group in grouped:
        name, accuracy, gain, *others, step = _row(group, grouped[0])
        last = [step] * timed + _cost(costs.get(group[0].method)) * known
        settings = [_values(group, each) for each in own]
        rows.append((name, accuracy, *[gain] * several, *others, *last, *settings))
    return (*header, *(name.replace("_", " ") for name in own)), rows


def markdown(table: Table) -> str:
    """The table in Markdown, its columns aligned so that it also reads as plain text."""
    header, rows = table
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])


def provenance(command: str) -> str:
    """The command, versions, commit, hardware and date, as a Markdown list."""
    versions = {name: importlib.metadata.version(name) for name in ("jax", "flax", "optax")}
    software = {"Python": platform.python_version(), "jaxnorm": jaxnorm.__version__, **versions}
    device = jax.devices()[0]
    hardware = f"{device.device_kind} ({device.platform}), {os.cpu_count()} CPU cores"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"- command: `{command}`\n"
        f"- versions: {', '.join(f'{name} {version}' for name, version in software.items())}\n"
        f"- commit: {_commit() or 'not a checkout, or no git'}\n"
        f"- hardware: {hardware}, {platform.system()} {platform.machine()}\n"
        f"- date: {date}\n"
    )


def _commit() -> str:
    """What git calls the sources; empty where it cannot be asked."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # Git is not installed, as in many containers.
        return ""


def _row(runs: Sequence[Run], first: Sequence[Run]) -> tuple[str, ...]:
    trained = [run for run in runs if not run.diverged]
    name = f"{runs[0].method}{failures(runs)}"
    if not trained:
        return (name, *[""] * 5)
    last, steps = [run.curve[-1] for run in trained], [run.step_ms for run in trained]
    baseline = {run.seed: run.curve[-1].test_accuracy for run in first if not run.diverged}
    pairs = [(run.curve[-1].test_accuracy, baseline.get(run.seed)) for run in trained]
    gains = [100 * (mine - theirs) for mine, theirs in pairs if theirs is not None]
    return (
        name,
        mean_and_deviation([100 * entry.test_accuracy for entry in last], ".2f"),
        "" if runs[0].method == first[0].method or not gains else mean_and_deviation(gains, "+.2f"),
        mean_and_deviation([entry.test_loss for entry in last], ".3f"),
        mean_and_deviation([100 * entry.train_accuracy for entry in last], ".2f"),
        mean_and_deviation(steps, ".1f" if max(steps) >= 100 else ".2f"),
    )


def _is_steady(runs: Sequence[Run]) -> bool:
    """Whether step times are near each other; those of runs that ended early do not count."""
    steps = [run.step_ms for run in runs if not run.diverged]
    return len(steps) < 2 or bool(np.std(steps, ddof=1) <= STEADY * np.mean(steps))


def _cost(cost: Cost | None) -> list[str]:
    return ["", ""] if cost is None else [f"{cost.traffic:.2f}", str(cost.collectives)]


def _values(runs: Sequence[Run], name: str) -> str:
    """The values of a setting under each seed, or the one of all."""
    found = [shown(dict(run.changes)[name]) for run in runs if name in dict(run.changes)]
    return found[0] if len(set(found)) == 1 else ", ".join(found)


def failures(runs: Sequence[Run]) -> str:
    """How many runs of a method did not train, as " (1 diverged)"; empty if all did."""
    counts = {k: sum(run.outcome.startswith(k) for run in runs) for k in (DIVERGED, AT_CHANCE)}
    said = [f"{count} {kind}" for kind, count in counts.items() if count]
    return f" ({', '.join(said)})" if said else ""


def mean_and_deviation(values: Sequence[float] | Sequence[np.floating[Any]], form: str) -> str:
    """``mean ± sample standard deviation``; the value itself if there is one."""
    mean = format(np.mean(values), form)
    if len(values) == 1:
        return mean
    # NumPy's deviation passes a diverged run's NaN on; the standard library's raises.
    return f"{mean} ± {np.std(values, ddof=1):{form.lstrip('+')}}"
