"""Tables and picture of the runs of `whole.py`.

python -m examples.networks.summary FOLDER [--beside FOLDER ...] [--methods METHOD ...]

Per network, method and optimizer the rate with the best held-out score under seed 0 is taken. The
difference to batch normalization is paired by network and seed, and pooled over networks. The call
with the optimizer "adamw relative" is the method "call relative" beside AdamW's. Runs that were
scored by running statistics of batch normalization are named below their table, and left out where
a run with statistics estimated anew stands in their place.
"""

import argparse
import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np

from examples.networks.earlier import MOMENTUM, completed, is_earlier, unmixed
from examples.networks.whole import Run, best, read_runs
from experiments.analysis import statistics

mpl.use("Agg")
from matplotlib import pyplot as plt

#: What all runs of a table have in common.
SETTINGS = (
    "task",
    "side",
    "rows",
    "steps",
    "batch",
    "optimizer",
    "warm_up",
    "augment",
    "bfloat16",
)

REFERENCE = "bn"

#: The methods in words, in the picture of rates, and their colors there.
WORDS = {
    "bn": ("batch normalization", "#000000"),
    "gn": ("GroupNorm, standardized weights", "#E69F00"),
    "call": ("normalizer_free", "#56B4E9"),
    "moving averages": ("moving_average_normalization", "#D55E00"),
}

#: What the picture of rates tells apart.
SHOWN = ("network", "method")

#: What a method is in networks without residual branches.
WITHOUT_BRANCHES = {"bn quiet": "bn", "call - quiet branches": "call"}

#: Colours of the picture, in the order of the methods.
COLORS = ("#000000", "#777777", "#E69F00", "#CC79A7", "#009E73", "#56B4E9", "#0072B2", "#D55E00")

#: Runs by network, method and seed, all at the chosen rate.
Table = Mapping[str, Mapping[str, Mapping[int, Run]]]


class Interval(NamedTuple):
    """A mean with its 95 % interval by Student's t, and the number of values."""

    mean: float
    half: float
    count: int

    def __str__(self) -> str:
        """Returns the mean and the interval."""
        if self.count < 2:
            return f"{self.mean:+.1f}"
        low, high = self.mean - self.half, self.mean + self.half
        return f"{self.mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def interval(values: list[float]) -> Interval:
    """Returns the mean of ``values`` with its interval."""
    mean, count = float(np.mean(values)), len(values)
    half = statistics.interval(np.array(values))[1] - mean if count > 1 else math.nan
    return Interval(mean, half, count)


def labelled(run: Run) -> Run:
    """Returns the run with its statistics, and its optimizer's variant in its method's name."""
    optimizer, *variant = run["optimizer"].split()
    return {**completed(run), "optimizer": optimizer, "method": " ".join([run["method"], *variant])}


def note_of(runs: list[Run]) -> str:
    """Returns a sentence on the statistics that batch normalization was scored with."""
    older: dict[str, dict[str, None]] = {}
    for run in filter(is_earlier, runs):
        older.setdefault(run["method"], {})[run["network"]] = None
    if not older:
        return "Batch normalization is scored with statistics of training rows, estimated anew."
    names = "; ".join(f"{method} in {', '.join(names)}" for method, names in older.items())
    return (
        f"Scored by running statistics, of momentum {MOMENTUM:g} over {runs[0]['steps']:,} "
        f"updates: {names}."
    )


def chosen(runs: list[Run]) -> Table:
    """Returns the runs at the rate and decay that the held-out rows of seed 0 chose."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        groups.setdefault(run["network"], {}).setdefault(run["method"], []).append(run)
    table: dict[str, dict[str, dict[int, Run]]] = {}
    for network, methods in groups.items():
        for method, found in methods.items():
            first = [run for run in found if run["seed"] == 0]
            if not first:
                continue
            at = best(first)
            table.setdefault(network, {})[method] = {
                run["seed"]: run
                for run in found
                if (run["rate"], run["decay"]) == (at["rate"], at["decay"])
            }
    return table


def differences(table: Table, method: str, reference: str, name: str) -> dict[str, list[float]]:
    """Returns method - reference by network, one per seed that both have.

    Batch normalization with quiet branches is batch normalization in networks without branches.
    """
    found = {}
    for network, methods in table.items():
        ours, theirs = _runs_of(methods, method), _runs_of(methods, reference)
        seeds = sorted(set(ours or ()) & set(theirs or ()))
        if ours and theirs and seeds:
            found[network] = [ours[seed][name] - theirs[seed][name] for seed in seeds]
    return found


def _runs_of(methods: Mapping[str, Mapping[int, Run]], method: str) -> Mapping[int, Run] | None:
    """Returns the runs of a method, or of the one that it is in networks without branches."""
    return methods.get(method) or methods.get(WITHOUT_BRANCHES.get(method, ""))


def pooled(found: Mapping[str, list[float]]) -> tuple[Interval, Interval]:
    """Returns the difference over all pairs, and over the networks' means."""
    pairs = [value for values in found.values() for value in values]
    return interval(pairs), interval([float(np.mean(values)) for values in found.values()])


def methods_of(table: Table) -> list[str]:
    """Returns the methods in the order of their first run."""
    return list(dict.fromkeys(method for methods in table.values() for method in methods))


def pooled_table(table: Table, reference: str) -> list[str]:
    """Returns the lines of the pooled differences to ``reference``."""
    lines = [
        f"| method - {reference} | networks | test, over pairs | test, over networks | held-out "
        "| training loss | initial loss, largest |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for method in methods_of(table):
        if method == reference:
            continue
        test = differences(table, method, reference, "test")
        if not test:
            continue
        pairs, networks = pooled(test)
        held_out = pooled(differences(table, method, reference, "held_out"))[0]
        loss = pooled(differences(table, method, reference, "training_loss"))[0]
        initial = max(
            run["initial_loss"]
            for methods in table.values()
            for run in methods.get(method, {}).values()
        )
        lines.append(
            f"| {method} | {len(test)} | {pairs} | {networks} | {held_out} "
            f"| {loss.mean:+.3f}{f' ± {loss.half:.3f}' * (loss.count > 1)} | {initial:.2f} |"
        )
    return lines


def network_table(table: Table, reference: str) -> list[str]:
    """Returns the lines of the scores, with the difference to ``reference``."""
    methods = methods_of(table)
    lines = [f"| network | {' | '.join(methods)} |", f"|---|{'---:|' * len(methods)}"]
    for network, by_method in table.items():
        cells = []
        for method in methods:
            by_seed = by_method.get(method)
            if not by_seed:
                cells.append("")
                continue
            scores = [run["test"] for run in by_seed.values()]
            losses = [run["training_loss"] for run in by_seed.values()]
            any_run = next(iter(by_seed.values()))
            found = differences({network: by_method}, method, reference, "test").get(network)
            difference = f", {interval(found)}" if found and method != reference else ""
            cells.append(
                f"{np.mean(scores):.1f}{difference}; loss {np.mean(losses):.3f}; "
                f"{any_run['rate']:g}, {any_run['decay']:g}; n = {len(scores)}"
            )
        lines.append(f"| {network} | {' | '.join(cells)} |")
    return lines


def at_chance(table: Table, limit: float) -> list[str]:
    """Returns the runs at a chosen rate that are below ``limit`` or not finite."""
    return [
        f"{network}, {method}, seed {seed}: {run['test']:.1f}"
        for network, methods in table.items()
        for method, by_seed in methods.items()
        for seed, run in by_seed.items()
        if run["test"] < limit or not run["finite"]
    ]


def draw(table: Table, reference: str, title: str, path: Path) -> None:
    """Draws the differences to ``reference``: per network one mark per seed, below them pooled."""
    methods = [method for method in methods_of(table) if method != reference]
    rows = [*table, "all networks"]
    figure, axes = plt.subplots(figsize=(8, 0.55 * len(rows) + 1.8), layout="constrained")
    for place, method in enumerate(methods):
        found, color = differences(table, method, reference, "test"), COLORS[place % len(COLORS)]
        shift = 0.7 * ((place + 0.5) / len(methods) - 0.5)
        for index, network in enumerate(table):
            values = found.get(network, [])
            axes.plot(values, [index + shift] * len(values), "o", color=color, ms=4, alpha=0.6)
        if found:
            pairs = pooled(found)[0]
            half = 0 if math.isnan(pairs.half) else pairs.half
            axes.errorbar(
                pairs.mean, len(table) + shift, xerr=half, fmt="s", color=color, label=method
            )
    axes.axvline(0, color="0.6", zorder=0)
    axes.set(xlabel=f"test, points above {reference}", yticks=range(len(rows)), title=title)
    axes.set_yticklabels(rows)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_rates(runs: list[Run], path: Path) -> None:
    """Draws test accuracy against the rate: a panel per network, a mark per training."""
    networks, methods = (list(dict.fromkeys(run[key] for run in runs)) for key in SHOWN)
    columns = min(4, len(networks))
    rows = -(-len(networks) // columns)
    ticks = sorted({run["rate"] for run in runs})
    size = (2.5 * columns + 0.4, 2.2 * rows + 0.9)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axes, network in zip(grid.flat, networks, strict=False):
        for place, method in enumerate(methods):
            mine = [run for run in runs if [run[key] for key in SHOWN] == [network, method]]
            _draw_method(axes, mine, *WORDS.get(method, (method, COLORS[place % len(COLORS)])))
        axes.set(xscale="log", xlim=(ticks[0] / 1.2, ticks[-1] * 1.2))
        axes.set_title(network, fontsize=10)
        axes.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid.flat[len(networks) :]:
        axes.set_axis_off()
    lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    lines = {name: line for name, line in lines.items() if not str(name).startswith("_")}
    figure.legend(lines.values(), lines, loc="outside upper center", ncols=2, frameon=False)
    figure.supxlabel("learning rate", fontsize=10)
    figure.supylabel("test accuracy, %", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_method(axes: Any, runs: list[Run], label: str, color: str) -> None:
    """Draws the trainings of a method, and a line through those of the first seed."""
    first = sorted((run["rate"], run["test"]) for run in runs if run["seed"] == 0)
    if first:
        axes.plot(*np.transpose(first), "-", color=color, lw=1.3, label=label)
        axes.plot(*np.transpose([(run["rate"], run["test"]) for run in runs]), ".", color=color)


def write_summary(folder: Path, beside: Sequence[Path] = (), methods: Collection[str] = ()) -> str:
    """Writes table.md and the pictures of each setting; returns the text.

    Args:
        folder: the runs, and where tables and pictures go.
        beside: folders of further runs, of the settings and networks that ``folder`` has.
        methods: the methods that are shown; all if it is empty.
    """
    groups: dict[str, list[Run]] = {}
    cell = (*SETTINGS, "network", "method")
    runs = read_runs(folder)
    known = {(_setting(run), run["network"]) for run in map(labelled, runs)}
    runs += [run for each in beside for run in read_runs(each)]
    runs = [run for run in runs if not methods or run["method"] in methods]
    for run in unmixed(map(labelled, runs), cell):
        if (_setting(run), run["network"]) in known:
            groups.setdefault(_setting(run), []).append(run)
    parts = []
    for index, (key, runs) in enumerate(groups.items()):
        values: dict[str, Any] = dict(zip(SETTINGS, json.loads(key), strict=True))
        if values["task"] != "photographs":  # Their images have one size and number.
            values |= {"side": False, "rows": False}
        title = ", ".join(f"{name} {value}" for name, value in values.items() if value is not False)
        table = chosen(runs)
        limit = 20.0 if values["task"] == "photographs" else 34.0
        chance = at_chance(table, limit)
        parts += [f"## {title}", ""]
        for reference in ("bn", "bn quiet", "gn", "call"):
            if reference in methods_of(table):
                parts += [*pooled_table(table, reference), ""]
        parts += [*network_table(table, REFERENCE), ""]
        parts += [
            f"At chance or not finite, at a chosen rate (below {limit:g}): "
            f"{len(chance)}{': ' if chance else ''}{'; '.join(chance)}.",
            "",
            note_of(runs),
            "",
        ]
        if REFERENCE in methods_of(table):
            draw(table, REFERENCE, title, folder / f"table-{index}.png")
            parts += [f"![Differences to batch normalization](table-{index}.png)", ""]
        if len({run["rate"] for run in runs if run["seed"] == 0}) > 1:
            draw_rates(runs, folder / f"rates-{index}.png")
            parts += [f"![Accuracy against the rate](rates-{index}.png)", ""]
    text = "\n".join(parts)
    (folder / "table.md").write_text(text, encoding="utf-8")
    return text


def _setting(run: Run) -> str:
    return json.dumps([run[name] for name in SETTINGS])


def main() -> None:
    """Writes the summary of a folder, and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--beside", type=Path, nargs="+", default=(), help="folders of more runs")
    parser.add_argument("--methods", nargs="+", default=(), help="the methods to show")
    options = parser.parse_args()
    print(write_summary(options.folder, options.beside, options.methods))


if __name__ == "__main__":
    main()
