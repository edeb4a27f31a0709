"""Findings on a network in training: a layer that has left its start, which the rate made it do."""

import math
from collections.abc import Mapping
from typing import SupportsFloat

import numpy as np

from jaxnorm._finding import BEFORE, Finding

#: Statistics of a layer.
Row = dict[str, float]

#: Statistics of the layers by name, in execution order.
Layers = dict[str, Row]

#: Limits between what trainings do that learn, and those at far too large rates, in the first
#: hundred updates: the factor by which the size of pre-activations and the kurtosis grow, and by
#: which the effective rank falls; the share of the live units that become dormant.
GROWTH, SHARPER, FALL, DYING = 1e4, 30.0, 50.0, 0.7

#: The remedy.
SLOWER = "a smaller learning rate, a third of it"


def rate_findings(
    signal: Mapping[str, SupportsFloat], start: Mapping[str, SupportsFloat]
) -> list[Finding]:
    """Faults that the learning rate made: the first layer whose signal has left the start's.

    For the hidden layers (all but the last) it finds pre-activations of 10,000 times the size (root
    mean square) of those at the start, more than 0.7 of the live units become dormant, less than a
    fiftieth of the effective rank, 30 times the kurtosis, and numbers that are not finite. After
    100 updates sound trainings were measured to reach 1,450 times, 0.69, a 25th and 9 times. It
    runs no network: keep the result of `propagation` from before the first step, and call it on
    later ones, from the first updates on.

    Args:
        signal: the result of `propagation` on the network in training. A function under jit returns
            dicts sorted by name; wanted is the order of execution, so let it return the values as a
            list.
        start: the result on the same network and rows before the first step.

    Returns:
        A finding of the kind ``"rate"`` or ``"not finite"``; none for a network that is well.

    Raises:
        ValueError: for results of different layers.

    Call it on the host, with values of one device.

    Example:
        >>> start = {
        ...     "0/variance": 1.0,
        ...     "0/squared_mean": 0.0,
        ...     "0/cosine": 0.0,
        ...     "0/dormant": 0.0,
        ...     "0/effective_rank": 20.0,
        ...     "0/kurtosis": 3.0,
        ... }
        >>> (finding,) = rate_findings(start | {"0/dormant": 0.75}, start)
        >>> print(finding)
        0 has left its start (dormant 0 -> 0.75): a smaller learning rate, a third of it

    Source: ours.
    """
    layers, before = by_layer(signal), by_layer(start)
    if [*layers] != [*before]:
        raise ValueError(
            f"the layers are {[*layers]}, and at the start {[*before]}: wanted results of one "
            "network by `propagation`, in execution order."
        )
    for name, row in layers.items():
        if not np.isfinite([*row.values()]).all() and np.isfinite([*before[name].values()]).all():
            return [Finding("not finite", name, {}, (SLOWER,))]
    left = {name: _left(layers[name], before[name]) for name in [*layers][:-1] or layers}
    return [Finding("rate", name, values, (SLOWER,)) for name, values in left.items() if values][:1]


def by_layer(signal: Mapping[str, SupportsFloat]) -> Layers:
    """Returns the statistics of each layer."""
    layers: Layers = {}
    for key, value in signal.items():
        name, _, quantity = key.rpartition("/")
        layers.setdefault(name, {})[quantity] = float(value)
    return layers


def _left(row: Row, start: Row) -> dict[str, float]:
    """Returns the statistics that have left the start's, each with its value there."""
    now, then = row | {"size": size(row)}, start | {"size": size(start)}
    left = {
        "size": now["size"] > GROWTH * then["size"],
        "dormant": now["dormant"] - then["dormant"] > DYING * (1 - then["dormant"]),
        "effective_rank": now["effective_rank"] * FALL < then["effective_rank"],
        "kurtosis": now["kurtosis"] > SHARPER * then["kurtosis"] > 0,
    }
    names = [name for name, is_out in left.items() if is_out]
    return {name: now[name] for name in names} | {f"{name}{BEFORE}": then[name] for name in names}


def size(row: Row) -> float:
    """Returns the root mean square of a layer's pre-activations."""
    return math.sqrt(row["variance"] + row["squared_mean"])
