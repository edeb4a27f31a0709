"""What a comparison comes to: an item for each way in which it may end, in lines that fit."""

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from experiments.methods.glossary import GLOSSARY
from experiments.reports.table import by_method, mean_and_interval
from experiments.runs.analyse import CONFIDENCE, interval
from experiments.training.fit import Run

#: The method that others are to take the place of.
AGAINST = "bn"

#: Points of test accuracy within which methods are level.
LEVEL = 1.0

ENDS = ("ahead", "level, within a point", "behind", "open", "did not train under every seed")


def conclusion(runs: Sequence[Run]) -> list[str]:
    """How far each method is from batch normalization, or from the first; nothing of one method.

    A method is ahead or behind if the whole interval of its differences under the same seeds is on
    one side; level, if the interval lies within a point of zero; and else it is open.
    """
    scores = {method: _scores(own) for method, own in by_method(runs).items()}
    against = AGAINST if scores.get(AGAINST) else next(iter(scores))
    if len(scores) < 2 or not scores[against]:
        return []
    if len(scores[against]) < 2:
        return ["One seed cannot tell methods apart: take three or more (--seeds 3)."]
    ends: dict[str, list[str]] = {end: [] for end in ENDS}
    for method in scores.keys() - {against}:
        mine, theirs = scores[method], scores[against]
        differences = np.array([mine[seed] - theirs[seed] for seed in theirs if seed in mine])
        figures = mean_and_interval(differences, "+.1f")
        ends[_end(differences)].append(f"{spelled(method)} {figures}".rstrip())
    head = (
        f"Against {spelled(against)}, in points of test accuracy, with {CONFIDENCE:.0%} intervals "
        f"over {len(scores[against])} seeds:"
    )
    said = [f"- {end}: {'; '.join(sorted(who))}" for end, who in ends.items() if who]
    wrap = partial(textwrap.wrap, width=100, subsequent_indent="  ", break_on_hyphens=False)
    # Markdown wants an empty line before a list.
    return [*wrap(head), "", *(line for end in said for line in wrap(end))]


def spelled(method: str) -> str:
    """The method's name with its code, where the glossary has it; else the code."""
    entry = GLOSSARY.get(method)
    return f"{entry.name} ({method})" if entry else method


def _scores(own: Sequence[Run]) -> Mapping[int, float]:
    """Test accuracies of a method in percent by seed; none if one of its runs did not train."""
    if any(run.outcome for run in own):
        return {}
    return {run.seed: 100 * run.curve[-1].test_accuracy for run in own}


def _end(differences: Float[np.ndarray, " seeds"]) -> str:
    if not differences.size:
        return ENDS[4]
    low, high = interval(differences)
    if low > -LEVEL and high < LEVEL:
        return ENDS[1]
    return ENDS[0] if low > 0 else ENDS[2] if high < 0 else ENDS[3]
