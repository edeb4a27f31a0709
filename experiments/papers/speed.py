"""Items that time training steps: ratios to the network without a method, beside the paper's."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, new_figure
from experiments.config import Config
from experiments.methods.table import find_methods
from experiments.papers.item import Context, Finding, Item, Preset, Report
from experiments.runs.timing import StepCost, measure_steps, random_batch

SMOKE_LABEL = (
    "a narrow network of four convolutions and two rounds: it shows that the item runs, and "
    "nothing else"
)

COLUMNS = (*StepCost._fields, "reported")


class Settings(NamedTuple):
    """Settings of a timing.

    Attributes:
        model: the network, on 32 x 32 colour images.
        activation: its activation.
        channels: the channels of its first stage; 64 is the papers'.
        batch_size: rows per step.
        repeats: the number of rounds, in each of which every method takes one step.
    """

    model: str
    activation: str
    channels: int = 64
    batch_size: int = 128
    repeats: int = 20


#: Times over the baseline's, by method and hardware.
Ratios = Mapping[str, Mapping[str, float]]


def timing(
    name: str,
    title: str,
    reported: str,
    ratios: Ratios,
    *,
    model: str,
    activation: str,
    batch_size: int,
) -> Item:
    """Makes the item that times the methods of the paper's ``ratios`` on a network."""
    smoke = Settings("cnn4", activation, channels=4, batch_size=16, repeats=2)
    cpu = Settings(model, activation, channels=16, batch_size=64, repeats=10)
    full = Settings(model, activation, batch_size=batch_size)
    return Item(
        name,
        title,
        reported,
        partial(run, ratios),
        smoke=Preset(smoke, "20 s on 2 CPU cores", SMOKE_LABEL),
        cpu=Preset(
            cpu, "3 min on 2 CPU cores", "networks of a quarter of the width, batches of 64"
        ),
        full=Preset(full, "10 min on 2 CPU cores, 1 min on a GPU"),
    )


def run(ratios: Ratios, settings: Settings, context: Context) -> Report:
    """Times the methods of the paper's ``ratios``."""
    config = Config(model=settings.model, activation=settings.activation)
    config = config.changed(channels=settings.channels)
    batch = random_batch(settings.batch_size)
    costs = measure_steps(find_methods(",".join(ratios)), config, batch, settings.repeats)
    findings = [
        Finding(
            f"{cost.method}: time over that of none",
            f"{cost.ratio:.3f} [{cost.ratio_low:.3f}, {cost.ratio_high:.3f}]",
            ", ".join(f"{x:.3g} ({where})" for where, x in ratios.get(cost.method, {}).items()),
        )
        for cost in costs
    ]
    ours = {cost.method: cost.ratio for cost in costs if cost.method in ratios}
    wanted = sorted(ratios, key=lambda name: sum(ratios[name].values()))
    order = sorted(ratios, key=ours.__getitem__)
    findings.append(Finding("cheapest first", ", ".join(order), ", ".join(wanted), order == wanted))
    rows = [
        (c.method, *(f"{x:.5g}" for x in c[1:]), next(iter(ratios.get(c.method, {}).values()), ""))
        for c in costs
    ]
    return Report(findings, COLUMNS, rows, {"ratios": _drawn(costs)})


def _drawn(costs: Sequence[StepCost]) -> Figure:
    figure = new_figure(1, height=3)
    axes = figure.axes[0]
    names, middles, low, high = zip(
        *((cost.method, cost.ratio, cost.ratio_low, cost.ratio_high) for cost in costs), strict=True
    )
    errors = np.abs(np.array([low, high]) - middles)
    axes.barh(names, middles, xerr=errors, color=COLOURS[1], alpha=0.8)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("time of a step over that of none")
    return figure
