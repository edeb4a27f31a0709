"""The table of a comparison, and its conclusion: methods against each other over paired seeds."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from experiments.analysis.measures import words
from experiments.analysis.statistics import (
    CONFIDENCE,
    Place,
    interval,
    mean_and_deviation,
    mean_and_interval,
    place,
)
from experiments.analysis.table import Table
from experiments.analysis.tpu import Cost
from experiments.methods.glossary import GLOSSARY
from experiments.runs.spec import own_settings, shown
from experiments.training.label_maps import MEAN_IOU
from experiments.training.run import AT_CHANCE, DIVERGED, Run

#: The method that others are compared with.
AGAINST = "bn"

#: Methods within so many points of test accuracy, or of mIoU, are level.
LEVEL = 1.0

#: The places in the conclusion's words, in its order.
OUTCOMES: dict[Place, str] = {
    "ahead": "ahead by more than a point",
    "level or ahead": "level or ahead",
    "level": "level, within a point",
    "level or behind": "level or behind",
    "behind": "behind by more than a point",
    "open": "open",
}

#: The last line of the conclusion.
NOT_TRAINED = "did not train under every seed"

#: The headings of the measures that compare methods; that of pixels right is beside mIoU.
HEADINGS = {"test_accuracy": "test, %", MEAN_IOU: "mIoU, %"}

NO_COSTS: Mapping[str, Cost] = {}


def by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups the runs by method, in their order."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.method, []).append(run)
    return groups


def measure_of(runs: Iterable[Run]) -> str:
    """Returns the measure that compares the methods: mIoU of label maps, else test accuracy."""
    return MEAN_IOU if any(MEAN_IOU in run.scores for run in runs) else "test_accuracy"


def measured(run: Run, measure: str) -> float:
    """Returns a measure of a run that trained, in percent."""
    found = run.scores[measure] if measure in run.scores else getattr(run.curve[-1], measure)
    return 100 * float(found)


def comparison_table(runs: Sequence[Run], costs: Mapping[str, Cost] = NO_COSTS) -> Table:
    """Makes a table with one row per method: mean ± standard deviation over its seeds.

    Accuracies are in percent; differences of test accuracies, or of label maps' mIoU, in points,
    are from the first method's under the same seeds. Step times are this machine's; the cost of a
    step on a TPU stands beside them if it is known. The last columns are settings that differ
    between runs, with one value per seed.
    """
    varied = own_settings(run.changes for run in runs)
    groups, measure = by_method(runs), measure_of(runs)
    first, *others = groups.values()
    rows = [
        _row(group, first, costs.get(method), varied, measure) for method, group in groups.items()
    ]
    most = max(map(len, groups.values()))
    for row, group in zip(rows, groups.values(), strict=True):
        if len(group) < most:
            row["method"] += f" ({len(group)} of {most} seeds)"
            row["method"] = row["method"].replace(") (", ", ")
    known = any(method in costs for method in groups)
    left_out = set() if others else {"difference"}
    left_out |= set() if known else {"TPU bytes", "collectives"}
    left_out |= set() if measure == MEAN_IOU else {"pixels, %"}
    header = tuple(name for name in rows[0] if name not in left_out)
    return header, [tuple(row[name] for name in header) for row in rows]


def _row(
    runs: Sequence[Run],
    first: Sequence[Run],
    cost: Cost | None,
    varied: Sequence[str],
    measure: str,
) -> dict[str, str]:
    """Returns every column's text for one method."""
    trained = [run for run in runs if not run.diverged]
    last, steps = [run.curve[-1] for run in trained], [run.step_ms for run in trained]
    baseline = {run.seed: measured(run, measure) for run in first if not run.diverged}
    pairs = [(measured(run, measure), baseline.get(run.seed)) for run in trained]
    gains = [mine - theirs for mine, theirs in pairs if theirs is not None]
    figures = {
        HEADINGS[measure]: ([mine for mine, _ in pairs], ".2f"),
        "difference": ([] if runs is first else gains, "+.2f"),
        "pixels, %": ([100 * entry.test_accuracy for entry in last], ".2f"),
        "test loss": ([entry.test_loss for entry in last], ".3f"),
        "train, %": ([100 * entry.train_accuracy for entry in last], ".2f"),
        "step, ms": (steps, ".1f" if max(steps, default=0) >= 100 else ".2f"),
    }
    return {
        "method": f"{runs[0].method}{failures(runs)}",
        **{name: mean_and_deviation(*each) if each[0] else "" for name, each in figures.items()},
        "TPU bytes": "" if cost is None else f"{cost.traffic:.2f}",
        "collectives": "" if cost is None else str(cost.collectives),
        **{name.replace("_", " "): _values(runs, name) for name in varied},
    }


def _values(runs: Sequence[Run], name: str) -> str:
    """Returns the values of a setting under each seed, or the common value of all."""
    values = [shown(dict(run.changes)[name]) for run in runs if name in dict(run.changes)]
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def failures(runs: Sequence[Run]) -> str:
    """Counts the runs of a method that did not train, as " (1 diverged)"; empty if all did."""
    counts = {k: sum(run.outcome.startswith(k) for run in runs) for k in (DIVERGED, AT_CHANCE)}
    counted = [f"{count} {kind}" for kind, count in counts.items() if count]
    return f" ({', '.join(counted)})" if counted else ""


def conclusion(runs: Sequence[Run]) -> list[str]:
    """Compares each method with batch normalization, or with the first; no lines for one method.

    A method's word is the place of the interval of its differences under the same seeds.
    """
    measure = measure_of(runs)
    scores = {method: _scores(group, measure) for method, group in by_method(runs).items()}
    against = AGAINST if scores.get(AGAINST) else next(iter(scores))
    if len(scores) < 2 or not scores[against]:
        return []
    few = "cannot tell methods apart: take three or more (--seeds 3)."
    if len(scores[against]) < 2:
        return [f"One seed {few}"]
    outcomes: dict[str, list[str]] = {outcome: [] for outcome in (*OUTCOMES.values(), NOT_TRAINED)}
    for method in scores.keys() - {against}:
        mine, theirs = scores[method], scores[against]
        differences = np.array([mine[seed] - theirs[seed] for seed in theirs if seed in mine])
        figures = mean_and_interval(differences, "+.1f")
        figures += f" over {len(differences)}" * (0 < len(differences) < len(theirs))
        outcomes[_outcome(differences)].append(f"{spelled(method)} {figures}".rstrip())
    head = (
        f"Against {spelled(against)}, in points of {words(measure)}, with {CONFIDENCE:.0%} "
        f"intervals over {len(scores[against])} seeds:"
    )
    items = [f"- {outcome}: {'; '.join(sorted(who))}" for outcome, who in outcomes.items() if who]
    wrap = partial(textwrap.wrap, width=100, subsequent_indent="  ", break_on_hyphens=False)
    # Markdown needs an empty line before a list.
    lines = [*wrap(head), "", *(line for item in items for line in wrap(item))]
    return [*lines, "", f"Two seeds {few}"] if len(scores[against]) == 2 else lines


def spelled(method: str) -> str:
    """Returns the glossary's name of a method with its code; the code alone if it has no entry."""
    entry = GLOSSARY.get(method)
    return f"{entry.name} ({method})" if entry else method


def _scores(runs: Sequence[Run], measure: str) -> Mapping[int, float]:
    """Returns a method's measure in percent by seed; none if a run of it did not train."""
    if any(run.outcome for run in runs):
        return {}
    return {run.seed: measured(run, measure) for run in runs}


def _outcome(differences: Float[np.ndarray, " seeds"]) -> str:
    return OUTCOMES[place(*interval(differences), LEVEL)] if differences.size else NOT_TRAINED
