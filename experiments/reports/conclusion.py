"""The conclusion of a comparison: a list of methods for each outcome."""

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from experiments.methods.glossary import GLOSSARY
from experiments.reports.table import by_method, mean_and_interval
from experiments.runs.analyse import CONFIDENCE, interval
from experiments.training.fit import Run

#: The method that others are compared with.
AGAINST = "bn"

#: Methods within so many points of test accuracy are level.
LEVEL = 1.0

OUTCOMES = ("ahead", "level, within a point", "behind", "open", "did not train under every seed")


def conclusion(runs: Sequence[Run]) -> list[str]:
    """Compares each method with batch normalization, or with the first; no lines for one method.

    A method is ahead or behind if the whole interval of its differences under the same seeds is on
    one side. It is level if the interval lies within a point of zero, and open otherwise.
    """
    scores = {method: _scores(group) for method, group in by_method(runs).items()}
    against = AGAINST if scores.get(AGAINST) else next(iter(scores))
    if len(scores) < 2 or not scores[against]:
        return []
    if len(scores[against]) < 2:
        return ["One seed cannot tell methods apart: take three or more (--seeds 3)."]
    outcomes: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    for method in scores.keys() - {against}:
        mine, theirs = scores[method], scores[against]
        differences = np.array([mine[seed] - theirs[seed] for seed in theirs if seed in mine])
        figures = mean_and_interval(differences, "+.1f")
        outcomes[_outcome(differences)].append(f"{spelled(method)} {figures}".rstrip())
    head = (
        f"Against {spelled(against)}, in points of test accuracy, with {CONFIDENCE:.0%} intervals "
        f"over {len(scores[against])} seeds:"
    )
    items = [f"- {outcome}: {'; '.join(sorted(who))}" for outcome, who in outcomes.items() if who]
    wrap = partial(textwrap.wrap, width=100, subsequent_indent="  ", break_on_hyphens=False)
    # Markdown needs an empty line before a list.
    return [*wrap(head), "", *(line for item in items for line in wrap(item))]


def spelled(method: str) -> str:
    """Returns the glossary's name of a method with its code; the code alone if it has no entry."""
    entry = GLOSSARY.get(method)
    return f"{entry.name} ({method})" if entry else method


def _scores(runs: Sequence[Run]) -> Mapping[int, float]:
    """Returns a method's test accuracies in percent by seed; none if a run of it did not train."""
    if any(run.outcome for run in runs):
        return {}
    return {run.seed: 100 * run.curve[-1].test_accuracy for run in runs}


def _outcome(differences: Float[np.ndarray, " seeds"]) -> str:
    if not differences.size:
        return OUTCOMES[4]
    low, high = interval(differences)
    if low > -LEVEL and high < LEVEL:
        return OUTCOMES[1]
    return OUTCOMES[0] if low > 0 else OUTCOMES[2] if high < 0 else OUTCOMES[3]
