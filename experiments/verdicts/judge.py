"""Rules that turn the runs of two sides into a verdict, the same for every claim."""

from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.analysis.measures import factor, gains, unit
from experiments.analysis.statistics import (
    LOOKS,
    above,
    deciding_look,
    mean_and_deviation,
    mean_and_interval,
)
from experiments.errors import UserError
from experiments.verdicts.claim import Claim
from experiments.verdicts.sides import SideResults

REPRODUCED = "reproduced at this scale"
NOT_REPRODUCED = "not reproduced at this scale"
OPEN = "open"

#: The least number of seeds of a claim.
SEEDS = 3
#: The training accuracy that one side must reach for runs to show the end of training; our choice.
FITTED = 0.75
#: Points by which median errors on the UCI sets may be above the paper's; our choice.
EXCESS = 2.0


class Verdict(NamedTuple):
    """The verdict on a claim.

    Attributes:
        word: `REPRODUCED`, `NOT_REPRODUCED` or `OPEN`.
        figures: the figures in words.
        reason: the reason for the verdict.
        interval: the interval of the difference; None for claims about training.
    """

    word: str
    figures: str
    reason: str
    interval: tuple[float, float] | None = None


def judge(claim: Claim, better: SideResults, worse: SideResults | None) -> Verdict:
    """Judges a claim by the runs of its sides.

    Args:
        claim: the claim.
        better: the runs of the side that is claimed to be better, to train, or to fail.
        worse: the runs of the other side; needed unless the claim is that one side trains.

    Raises:
        UserError: if the sides have fewer than three seeds in common.
    """
    refuse_few_seeds(claim, better, worse)
    if claim.kind in ("trains", "fails"):
        return _on_training(claim, better, worse)
    assert worse is not None, claim.name
    return _on_difference(claim, better, worse)


def refuse_few_seeds(claim: Claim, better: SideResults, worse: SideResults | None) -> None:
    """Raises UserError if the sides have fewer than three seeds in common."""
    seeds = better.seeds if worse is None else better.seeds & worse.seeds
    if len(seeds) < SEEDS:
        raise UserError(
            f"the claim {claim.name} has {len(seeds)} seeds in {claim.results}; wanted {SEEDS} at "
            "least on both sides: train more, or take the claim out."
        )


def _on_difference(claim: Claim, better: SideResults, worse: SideResults) -> Verdict:
    pairs = [name for name in better.values if name in worse.values]
    sides = (np.array([side.values[name] for name in pairs]) for side in (better, worse))
    differences = gains(claim.measure, *sides)
    # Wins are paired by data set, and all sets are looked at together.
    looks = (len(differences),) if claim.measure == "wins" else LOOKS
    used, ends = deciding_look(differences, partial(_holds, claim), looks)
    gained = mean_and_interval(used, "+.2f", unit(claim.measure), ends)
    figures = f"{_levels(claim, better, worse)}; {gained}"
    if len(used) < len(differences):
        figures += f" with {len(used)} seeds"
    lost, holds = _lost(claim, better, worse), _holds(claim, *ends)
    side = "on the paper's side" if holds else "against it"
    word, reason = REPRODUCED if holds else NOT_REPRODUCED, f"the whole interval is {side}"
    if holds is None:
        word, reason = OPEN, "the interval leaves it open"
    elif claim.about == "trained" and (early := _stopped_early(better, worse)):
        here = "it holds here" if holds else "the reverse holds here"
        word, reason = OPEN, f"{here}, but {early}"
    return Verdict(word, figures, "; ".join([reason, *lost]), ends)


def _stopped_early(better: SideResults, worse: SideResults) -> str:
    """Returns the sign that training had not ended; empty if it had, or if nothing shows it."""
    fitted, excess = np.fmax(better.fitted, worse.fitted), np.fmin(better.excess, worse.excess)
    if fitted < FITTED:
        return (
            f"training stopped at an accuracy of {100 * fitted:.0f}% on its own rows: that is how "
            "fast it starts"
        )
    return f"errors are {excess:.1f} points above the paper's" if excess > EXCESS else ""


def _holds(claim: Claim, low: float, high: float) -> bool | None:
    """Returns True if an interval of gains confirms the claim, False if it refutes it."""
    if claim.kind == "same":
        if -claim.margin < low and high < claim.margin:
            return True
        return False if low > claim.margin or high < -claim.margin else None
    return above(low, high, -claim.margin)


def _on_training(claim: Claim, side: SideResults, other: SideResults | None) -> Verdict:
    """Judges a claim that one side trains in every seed, or fails where the other trains."""
    reasons = [_counted(claim.better.name, side) or f"all {len(side.seeds)} seeds train"]
    if claim.worse is None or other is None:
        figures, holds = _level(claim, claim.better.name, side), not side.lost
    else:
        figures = _levels(claim, side, other)
        holds = side.lost.keys() == side.seeds and not other.lost
        reasons += filter(None, [_counted(claim.worse.name, other)])
    return Verdict(REPRODUCED if holds else NOT_REPRODUCED, figures, "; ".join(reasons))


def _levels(claim: Claim, better: SideResults, worse: SideResults) -> str:
    assert claim.worse is not None, claim.name
    return f"{_level(claim, claim.better.name, better)}, {_level(claim, claim.worse.name, worse)}"


def _level(claim: Claim, name: str, side: SideResults) -> str:
    """Returns the side's mean and deviation, or its number of wins."""
    numbers = factor(claim.measure) * np.array(list(side.values.values()))
    if claim.measure == "wins":
        return f"{name} {numbers.sum():.0f} of {len(numbers)} sets"
    return f"{name} {mean_and_deviation(list(numbers), '.2f')}"


def _lost(claim: Claim, better: SideResults, worse: SideResults) -> list[str]:
    """Reports the runs that count as constant guesses; empty if there are none."""
    assert claim.worse is not None, claim.name
    counted = (_counted(claim.better.name, better), _counted(claim.worse.name, worse))
    return [f"{each}, counted as a constant guess" for each in counted if each]


def _counted(name: str, side: SideResults) -> str:
    """Counts the lost seeds of a side, by kind."""
    kinds = Counter(side.lost.values())
    return ", ".join(f"{name} {k} ({n} of {len(side.seeds)} seeds)" for k, n in kinds.items())
