"""Differences of methods over several networks, paired by network and seed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.analysis.comparison import by_method, measure_of, measured
from experiments.analysis.statistics import CONFIDENCE, mean_and_interval
from experiments.analysis.table import Table
from experiments.training.run import Run

NOTE = (
    "Differences from the first method on the same network under the same seed: the mean, and\n"
    f"the {CONFIDENCE:.0%} interval of Student's t, over all pairs and over the networks' means.\n"
    "Tests are in points of {}. A network in which a run of either method did not train is left\n"
    "out; the column networks counts the others."
)

#: The begin of the table's header, before the name of the first method.
HEADER = "method - "

#: Differences by network, one per seed.
Differences = Mapping[str, Float[np.ndarray, " seeds"]]


class Scores(NamedTuple):
    """The test score in percent and the training loss of a run."""

    test: float
    train_loss: float


def pooled_table(networks: Mapping[str, Sequence[Run]]) -> Table:
    """Makes the table of differences from the first method, one row per method.

    Args:
        networks: the runs by network.
    """
    scores = {name: _scores(runs) for name, runs in networks.items()}
    first, *others = dict.fromkeys(method for each in scores.values() for method in each)
    header = (
        *(f"{HEADER}{first}", "networks", "test, over pairs", "test, over networks"),
        "training loss, over pairs",
    )
    rows = []
    for method in others:
        test, loss = (differences(scores, method, first, name) for name in Scores._fields)
        rows.append(
            (
                method,
                f"{len(test)} of {len(networks)}",
                mean_and_interval(pairs(test), "+.2f"),
                mean_and_interval(means(test), "+.2f"),
                mean_and_interval(pairs(loss), "+.3f"),
            )
        )
    return header, rows


def differences(
    scores: Mapping[str, Mapping[str, Mapping[int, Scores]]], method: str, first: str, name: str
) -> Differences:
    """Returns a method's differences from the first by network, one per seed that both have."""
    found = {}
    for network, methods in scores.items():
        ours, theirs = methods.get(method, {}), methods.get(first, {})
        seeds = sorted(ours.keys() & theirs.keys())
        if seeds:
            gains = [getattr(ours[seed], name) - getattr(theirs[seed], name) for seed in seeds]
            found[network] = np.array(gains)
    return found


def pairs(found: Differences) -> Float[np.ndarray, " pairs"]:
    """Returns the differences of all networks in one array."""
    return np.concatenate([np.zeros(0), *found.values()])


def means(found: Differences) -> Float[np.ndarray, " networks"]:
    """Returns the mean difference of each network."""
    return np.array([values.mean() for values in found.values()])


def _scores(runs: Sequence[Run]) -> dict[str, dict[int, Scores]]:
    """Returns scores by method and seed; none for a method of which a run did not train."""
    measure = measure_of(runs)
    return {
        method: {
            run.seed: Scores(measured(run, measure), run.curve[-1].train_loss)
            for run in group
            if not any(each.outcome for each in group)
        }
        for method, group in by_method(runs).items()
    }
