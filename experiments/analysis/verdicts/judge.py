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
    place,
)
from experiments.analysis.verdicts.claim import Claim
from experiments.analysis.verdicts.results import SideResults
from experiments.errors import UserError

REPRODUCED = "reproduced at this scale"
NOT_REPRODUCED = "not reproduced at this scale"
OPEN = "open"

#: The side of the whole interval, in words.
SIDES = {True: "on the paper's side", False: "against it"}

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
        seeds: the number of seeds.
        interval: the interval of the difference; None for claims about training.
    """

    word: str
    figures: str
    reason: str
    seeds: int
    interval: tuple[float, float] | None = None


def judge(claim: Claim, *sides: SideResults) -> Verdict:
    """Judges a claim by the runs of its sides, in the order of the claim's.

    Raises:
        UserError: if the sides have fewer than three seeds in common.
    """
    common = frozenset.intersection(*(side.seeds for side in sides))
    if len(common) < SEEDS:
        raise UserError(
            f"the claim {claim.name} has {len(common)} seeds in {', '.join(claim.files)}; wanted "
            f"{SEEDS} at least on both sides: train more, or take the claim out."
        )
    if claim.kind in ("trains", "fails"):
        return _on_training(claim, *sides)
    return _on_difference(claim, *sides)


def _on_difference(claim: Claim, better: SideResults, worse: SideResults) -> Verdict:
    """Judges a claim about a difference over paired seeds, or data sets."""
    pairs = [name for name in better.values if name in worse.values]
    values = (np.array([side.values[name] for name in pairs]) for side in (better, worse))
    differences = gains(claim.measure, *values)
    # Wins are paired by data set, and all sets are looked at together.
    looks = (len(differences),) if claim.measure == "wins" else LOOKS
    used, ends = deciding_look(differences, partial(_holds, claim), looks)
    gained = mean_and_interval(used, "+.2f", unit(claim.measure), ends)
    figures = f"{_level(claim, better)}, {_level(claim, worse)}; {gained}"
    if len(used) < len(differences):
        figures += f" with {len(used)} seeds"
    holds = _holds(claim, *ends)
    if holds is None:
        word, reason = OPEN, "the interval leaves it open"
    elif claim.about == "trained" and (early := _stopped_early(better, worse)):
        here = "it holds here" if holds else "the reverse holds here"
        word, reason = OPEN, f"{here}, but {early}"
    else:
        word = REPRODUCED if holds else NOT_REPRODUCED
        reason = f"the whole interval is {SIDES[holds]}"
    lost = [f"{each}, counted as a constant guess" for each in map(_lost, (better, worse)) if each]
    return Verdict(word, figures, "; ".join([reason, *lost]), len(better.seeds), ends)


def _holds(claim: Claim, low: float, high: float) -> bool | None:
    """Returns True if an interval of gains confirms the claim, False if it refutes it."""
    if claim.kind == "same":
        return {"level": True, "ahead": False, "behind": False}.get(place(low, high, claim.margin))
    return above(low, high, -claim.margin)


def _stopped_early(better: SideResults, worse: SideResults) -> str:
    """Returns the sign that training had not ended; empty if it had, or if nothing shows it."""
    fitted, excess = np.fmax(better.fitted, worse.fitted), np.fmin(better.excess, worse.excess)
    if fitted < FITTED:
        return (
            f"training stopped at an accuracy of {100 * fitted:.0f}% on its own rows: that is how "
            "fast it starts"
        )
    return f"errors are {excess:.1f} points above the paper's" if excess > EXCESS else ""


def _on_training(claim: Claim, side: SideResults, *others: SideResults) -> Verdict:
    """Judges a claim that one side trains in every seed, or fails where the other trains."""
    fails = claim.kind == "fails"
    holds = side.lost.keys() == side.seeds if fails else not side.lost
    holds = holds and not any(other.lost for other in others)
    reasons = [_lost(side) or f"all {len(side.seeds)} seeds train", *map(_lost, others)]
    figures = ", ".join(_level(claim, each) for each in (side, *others))
    word = REPRODUCED if holds else NOT_REPRODUCED
    return Verdict(word, figures, "; ".join(filter(None, reasons)), len(side.seeds))


def _level(claim: Claim, side: SideResults) -> str:
    """Returns the side's mean and deviation, or its number of wins."""
    numbers = factor(claim.measure) * np.array(list(side.values.values()))
    if claim.measure == "wins":
        return f"{side.name} {numbers.sum():.0f} of {len(numbers)} sets"
    return f"{side.name} {mean_and_deviation(list(numbers), '.2f')}"


def _lost(side: SideResults) -> str:
    """Counts the lost seeds of a side, by kind."""
    kinds = Counter(side.lost.values())
    return ", ".join(f"{side.name} {k} ({n} of {len(side.seeds)} seeds)" for k, n in kinds.items())
