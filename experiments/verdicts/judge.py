"""From the runs of two sides to a verdict, by rules that are the same for every claim."""

from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.errors import UserError
from experiments.reports.table import mean_and_deviation, mean_and_interval
from experiments.runs.analyse import LOOKS, above, deciding_look
from experiments.runs.measures import factor, gains, unit
from experiments.verdicts.claim import Claim
from experiments.verdicts.seen import Seen

REPRODUCED = "reproduced at this scale"
NOT_REPRODUCED = "not reproduced at this scale"
OPEN = "open"

#: No claim is judged from fewer seeds.
SEEDS = 3
#: The training accuracy that one side must reach before runs say where training ends; ours.
FITTED = 0.75
#: By how many points errors on the UCI sets may be above the paper's, in the median; ours.
EXCESS = 2.0


class Verdict(NamedTuple):
    """What is said of a claim.

    Attributes:
        word: one of the three.
        found: the figures.
        reason: why.
        interval: of the difference, where one was taken.
    """

    word: str
    found: str
    reason: str
    interval: tuple[float, float] | None = None


def judge(claim: Claim, better: Seen, worse: Seen | None) -> Verdict:
    """The verdict on a claim.

    Args:
        claim: it.
        better: the runs of the side that is said to be better, to train, or to fail.
        worse: those of the other side; needed unless the claim is that one side trains.

    Raises:
        UserError: for fewer than three seeds that both sides have.
    """
    refuse_few_seeds(claim, better, worse)
    if claim.kind in ("trains", "fails"):
        return _on_training(claim, better, worse)
    assert worse is not None, claim.name
    return _on_difference(claim, better, worse)


def refuse_few_seeds(claim: Claim, better: Seen, worse: Seen | None) -> None:
    """Raises UserError where there are fewer than three seeds in common."""
    seeds = better.seeds if worse is None else better.seeds & worse.seeds
    if len(seeds) < SEEDS:
        raise UserError(
            f"the claim {claim.name} has {len(seeds)} seeds in {claim.results}; wanted {SEEDS} at "
            "least on both sides: train more, or take the claim out."
        )


def _on_difference(claim: Claim, better: Seen, worse: Seen) -> Verdict:
    pairs = [name for name in better.values if name in worse.values]
    sides = (np.array([side.values[name] for name in pairs]) for side in (better, worse))
    differences = gains(claim.measure, *sides)
    # Wins are paired by data set, of which all are looked at at once.
    looks = (len(differences),) if claim.measure == "wins" else LOOKS
    seen, ends = deciding_look(differences, partial(_holds, claim), looks)
    gained = mean_and_interval(seen, "+.2f", unit(claim.measure), ends)
    found = f"{_levels(claim, better, worse)}; {gained}"
    if len(seen) < len(differences):
        found += f" with {len(seen)} seeds"
    lost, holds = _lost(claim, better, worse), _holds(claim, *ends)
    side = "on the paper's side" if holds else "against it"
    word, reason = REPRODUCED if holds else NOT_REPRODUCED, f"the whole interval is {side}"
    if holds is None:
        word, reason = OPEN, "the interval leaves it open"
    elif claim.about == "trained" and (early := _stopped_early(better, worse)):
        here = "it holds here" if holds else "the reverse holds here"
        word, reason = OPEN, f"{here}, but {early}"
    return Verdict(word, found, "; ".join([reason, *lost]), ends)


def _stopped_early(better: Seen, worse: Seen) -> str:
    """Why runs do not say where training ends; empty if they do, or if nothing tells."""
    fitted, excess = np.fmax(better.fitted, worse.fitted), np.fmin(better.excess, worse.excess)
    if fitted < FITTED:
        return (
            f"training stopped at an accuracy of {100 * fitted:.0f}% on its own rows: that is how "
            "fast it starts"
        )
    return f"errors are {excess:.1f} points above the paper's" if excess > EXCESS else ""


def _holds(claim: Claim, low: float, high: float) -> bool | None:
    """Whether an interval of gains confirms the claim or refutes it; None for neither."""
    if claim.kind == "same":
        if -claim.margin < low and high < claim.margin:
            return True
        return False if low > claim.margin or high < -claim.margin else None
    return above(low, high, -claim.margin)


def _on_training(claim: Claim, side: Seen, other: Seen | None) -> Verdict:
    """Of a claim that one side trains, or that it fails where the other trains: of every seed."""
    said = [_counted(claim.better.name, side) or f"all {len(side.seeds)} seeds train"]
    if claim.worse is None or other is None:
        found, holds = _level(claim, claim.better.name, side), not side.lost
    else:
        found = _levels(claim, side, other)
        holds = side.lost.keys() == side.seeds and not other.lost
        said += filter(None, [_counted(claim.worse.name, other)])
    return Verdict(REPRODUCED if holds else NOT_REPRODUCED, found, "; ".join(said))


def _levels(claim: Claim, better: Seen, worse: Seen) -> str:
    assert claim.worse is not None, claim.name
    return f"{_level(claim, claim.better.name, better)}, {_level(claim, claim.worse.name, worse)}"


def _level(claim: Claim, name: str, side: Seen) -> str:
    """The side's mean and deviation, or its number of wins."""
    numbers = factor(claim.measure) * np.array(list(side.values.values()))
    if claim.measure == "wins":
        return f"{name} {numbers.sum():.0f} of {len(numbers)} sets"
    return f"{name} {mean_and_deviation(list(numbers), '.2f')}"


def _lost(claim: Claim, better: Seen, worse: Seen) -> list[str]:
    """What is said of runs that count as constant guesses; nothing if there are none."""
    assert claim.worse is not None, claim.name
    said = (_counted(claim.better.name, better), _counted(claim.worse.name, worse))
    return [f"{each}, counted as a constant guess" for each in said if each]


def _counted(name: str, side: Seen) -> str:
    """How many seeds of a side were lost, and how."""
    kinds = Counter(side.lost.values())
    return ", ".join(f"{name} {k} ({n} of {len(side.seeds)} seeds)" for k, n in kinds.items())
