"""The table of a comparison: mean and spread over seeds, and the provenance of the numbers."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import jaxnorm
from experiments.reports.tpu import Cost
from experiments.runs.analyse import interval
from experiments.runs.spec import own_settings, shown
from experiments.training.fit import AT_CHANCE, DIVERGED, Run

#: A header and rows of text.
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


#: The largest relative deviation of step times that are shown; above, they measure other work.
STEADY = 0.1

NO_COSTS: Mapping[str, Cost] = {}


def by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups the runs by method, in their order."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.method, []).append(run)
    return groups


def comparison_table(runs: Sequence[Run], costs: Mapping[str, Cost] = NO_COSTS) -> Table:
    """Makes a table with one row per method: mean ± standard deviation over its seeds.

    Accuracies are in percent; differences of test accuracies, in points, are from the first
    method's under the same seeds. The table shows the cost of a step on a TPU if it is known, and
    the step time otherwise if the times are steady. The last columns are settings that differ
    between runs, with one value per seed.
    """
    varied = own_settings(run.changes for run in runs)
    groups = by_method(runs)
    first, *others = groups.values()
    rows = [_row(group, first, costs.get(method), varied) for method, group in groups.items()]
    known = any(method in costs for method in groups)
    left_out = set() if others else {"difference"}
    left_out |= set() if known else {"TPU bytes", "waits"}
    left_out |= {"step, ms"} if known or not all(map(_is_steady, groups.values())) else set()
    header = tuple(name for name in rows[0] if name not in left_out)
    return header, [tuple(row[name] for name in header) for row in rows]


def markdown(table: Table) -> str:
    """Formats the table in Markdown, with aligned columns to be read as plain text too."""
    header, rows = table
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])


def provenance(command: str) -> str:
    """Returns the command, versions, commit, hardware and date, as a Markdown list."""
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
    """Returns git's description of the sources; empty without git."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # Git is not installed.
        return ""


def _row(
    runs: Sequence[Run], first: Sequence[Run], cost: Cost | None, varied: Sequence[str]
) -> dict[str, str]:
    """Returns every column's text for one method."""
    trained = [run for run in runs if not run.diverged]
    last, steps = [run.curve[-1] for run in trained], [run.step_ms for run in trained]
    baseline = {run.seed: run.curve[-1].test_accuracy for run in first if not run.diverged}
    pairs = [(run.curve[-1].test_accuracy, baseline.get(run.seed)) for run in trained]
    gains = [100 * (mine - theirs) for mine, theirs in pairs if theirs is not None]
    figures = {
        "test, %": ([100 * entry.test_accuracy for entry in last], ".2f"),
        "difference": ([] if runs is first else gains, "+.2f"),
        "test loss": ([entry.test_loss for entry in last], ".3f"),
        "train, %": ([100 * entry.train_accuracy for entry in last], ".2f"),
        "step, ms": (steps, ".1f" if max(steps, default=0) >= 100 else ".2f"),
    }
    return {
        "method": f"{runs[0].method}{failures(runs)}",
        **{name: mean_and_deviation(*each) if each[0] else "" for name, each in figures.items()},
        "TPU bytes": "" if cost is None else f"{cost.traffic:.2f}",
        "waits": "" if cost is None else str(cost.collectives),
        **{name.replace("_", " "): _values(runs, name) for name in varied},
    }


def _is_steady(runs: Sequence[Run]) -> bool:
    """Returns True if step times are close to each other, apart from runs that ended early."""
    steps = [run.step_ms for run in runs if not run.diverged]
    return len(steps) < 2 or bool(np.std(steps, ddof=1) <= STEADY * np.mean(steps))


def _values(runs: Sequence[Run], name: str) -> str:
    """Returns the values of a setting under each seed, or the common value of all."""
    values = [shown(dict(run.changes)[name]) for run in runs if name in dict(run.changes)]
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def failures(runs: Sequence[Run]) -> str:
    """Counts the runs of a method that did not train, as " (1 diverged)"; empty if all did."""
    counts = {k: sum(run.outcome.startswith(k) for run in runs) for k in (DIVERGED, AT_CHANCE)}
    counted = [f"{count} {kind}" for kind, count in counts.items() if count]
    return f" ({', '.join(counted)})" if counted else ""


def mean_and_deviation(values: Sequence[float] | Sequence[np.floating[Any]], form: str) -> str:
    """Formats ``mean ± sample standard deviation``; a single value without deviation."""
    mean = format(np.mean(values), form)
    if len(values) == 1:
        return mean
    # NumPy's deviation propagates a diverged run's NaN; the standard library's raises.
    return f"{mean} ± {np.std(values, ddof=1):{form.lstrip('+')}}"


def mean_and_interval(
    values: Float[np.ndarray, " n"],
    form: str,
    unit: str = "",
    ends: tuple[float, float] | None = None,
) -> str:
    """Formats ``mean unit [low, high]``, the interval of the mean; empty without values."""
    if not len(values):
        return ""
    low, high = ends or interval(values)
    return f"{values.mean():{form}}{unit} [{low:{form}}, {high:{form}}]"
