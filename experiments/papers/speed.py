"""Items that time training steps: ratios to the network without a method, beside the paper's."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from experiments.bench.step import StepCost, measure_steps, random_batch
from experiments.config import Config
from experiments.methods.table import find_methods
from experiments.papers.item import Claim, Context, Item, Preset, Presets, Report
from experiments.reports.picture import COLOURS, new_figure

COLUMNS = (*StepCost._fields, "reported")


class Speed(NamedTuple):
    """How steps are timed.

    Attributes:
        model: the network, on 32 x 32 colour images.
        activation: its activation.
        channels: of its first stage; 64 is the papers'.
        batch_size: the rows of a step.
        repeats: the rounds; in each, every method takes one step.
    """

    model: str
    activation: str
    channels: int = 64
    batch_size: int = 128
    repeats: int = 20


def speed_item(
    name: str, title: str, reported: str, ratios: Mapping[str, Mapping[str, float]], full: Speed
) -> Item:
    """An item that times methods.

    Args:
        name: PAPER/ITEM.
        title: what it shows.
        reported: what the paper reports.
        ratios: by method, the paper's times over the baseline's, by hardware.
        full: the paper's sizes.
    """

    def run(setting: Speed, context: Context) -> Report:
        config = Config(
            model=setting.model, activation=setting.activation, channels=setting.channels
        )
        methods = find_methods(",".join(ratios))
        batch = random_batch(setting.batch_size)
        costs = measure_steps(methods, config, batch, setting.repeats)
        context.advance(1.0, "measured")
        return _report(costs, ratios)

    presets: Presets = {
        "smoke": Preset(
            full._replace(model="cnn4", channels=4, batch_size=16, repeats=2),
            "20 s on 2 CPU cores",
            "a narrow network of four convolutions and two rounds: it shows that the item runs, "
            "and nothing else",
        ),
        "cpu": Preset(
            full._replace(channels=16, batch_size=64, repeats=10),
            "3 min on 2 CPU cores",
            "networks of a quarter of the width, batches of 64",
        ),
        "full": Preset(full, "10 min on 2 CPU cores, 1 min on a GPU"),
    }
    return Item(name, title, reported, run, presets)


def _report(costs: Sequence[StepCost], ratios: Mapping[str, Mapping[str, float]]) -> Report:
    claims = [
        Claim(
            f"{cost.method}: time over that of none",
            f"{cost.ratio:.3f} [{cost.ratio_low:.3f}, {cost.ratio_high:.3f}]",
            ", ".join(f"{x:.3g} ({where})" for where, x in ratios.get(cost.method, {}).items()),
        )
        for cost in costs
    ]
    by_name = {cost.method: cost for cost in costs}
    ordered = sorted(ratios, key=lambda name: sum(ratios[name].values()))
    measured = [by_name[name].ratio for name in ordered]
    found = ", ".join(sorted(ratios, key=lambda name: by_name[name].ratio))
    holds = measured == sorted(measured)
    claims.append(Claim("cheapest first", found, ", ".join(ordered), holds))
    rows = [
        (c.method, *(f"{x:.5g}" for x in c[1:]), next(iter(ratios.get(c.method, {}).values()), ""))
        for c in costs
    ]
    note = "Medians over rounds [quartiles] of one interleaved run; the control is none once more."
    return Report(claims, COLUMNS, rows, {"ratios": _drawn(costs)}, (note,))


def _drawn(costs: Sequence[StepCost]) -> Figure:
    figure = new_figure(1, height=3)
    axes = figure.axes[0]
    names = [cost.method for cost in costs]
    middles = [cost.ratio for cost in costs]
    errors = [
        [cost.ratio - cost.ratio_low for cost in costs],
        [cost.ratio_high - cost.ratio for cost in costs],
    ]
    axes.barh(names, middles, xerr=errors, color=COLOURS[1], alpha=0.8)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("time of a step over that of none")
    return figure
