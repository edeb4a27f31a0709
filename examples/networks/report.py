"""Table and picture of the finished runs."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np

from examples.networks.earlier import MOMENTUM, is_earlier, unmixed
from examples.networks.ten import NETWORKS

mpl.use("Agg")
from matplotlib import pyplot as plt

#: Methods with the colour and the marker of the picture. The recipe, which the call has replaced,
#: is in finished runs only.
STYLES = {
    "batch normalization": ("#000000", "s"),
    "deleted": ("#D55E00", "x"),
    "recipe": ("#0072B2", "^"),
    "call": ("#009E73", "o"),
}


class Cell(NamedTuple):
    """A network and a method at the rate with the best held-out accuracy.

    Attributes:
        rate: the rate.
        initial_loss: one per seed, from 0 on.
        test: accuracies in per cent, one per seed, from 0 on.
    """

    rate: float
    initial_loss: list[float]
    test: list[float]


def best_rate(runs: list[dict[str, Any]]) -> float:
    """Returns the rate with the best held-out accuracy under seed 0, the smaller one of equals."""
    tuned = [run for run in runs if run["seed"] == 0]
    return float(max(tuned, key=lambda run: (run["held_out"], -run["rate"]))["rate"])


def cells(runs: list[dict[str, Any]]) -> dict[str, dict[str, Cell]]:
    """Returns the cells by network and method."""
    runs = unmixed(runs, ("network", "method"))
    table: dict[str, dict[str, Cell]] = {}
    for network in NETWORKS:
        for method in STYLES:
            found = [r for r in runs if (r["network"], r["method"]) == (network, method)]
            if not found:
                continue
            best = best_rate(found)
            at_best = sorted((r for r in found if r["rate"] == best), key=lambda r: r["seed"])
            table.setdefault(network, {})[method] = Cell(
                best,
                [run["initial_loss"] for run in at_best],
                [run["test"] for run in at_best],
            )
    return table


def spread(values: list[float], digits: int) -> str:
    """Returns mean ± standard deviation, or the value of one seed."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def markdown(table: Mapping[str, Mapping[str, Cell]]) -> str:
    """Returns the table: per method initial loss, test accuracy and chosen rate."""
    methods, replaced = methods_of(table), replacements(table)
    columns = [f"{method}: initial loss | test, % | rate" for method in methods]
    columns += [f"{method} - bn" for method in replaced]
    aligned = "---:|" * (3 * len(methods) + len(replaced))
    lines = [f"| network | library | {' | '.join(columns)} |", f"|---|---|{aligned}"]
    for network, of_network in table.items():
        shown = []
        for method in methods:
            cell = of_network.get(method)
            shown += (
                [spread(cell.initial_loss, 2), spread(cell.test, 1), f"{cell.rate:g}"]
                if cell
                else 3 * [""]
            )
        shown += [difference(of_network, method) for method in replaced]
        lines.append(f"| {network} | {NETWORKS[network].library} | {' | '.join(shown)} |")
    return "\n".join(lines)


def methods_of(table: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """Returns the methods with a run."""
    return [method for method in STYLES if any(method in cells for cells in table.values())]


def replacements(table: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """Returns the methods with a run that stand in the place of batch normalization."""
    return [method for method in methods_of(table) if method in ("recipe", "call")]


def difference(methods: Mapping[str, Cell], method: str) -> str:
    """Returns method - batch normalization in points of test accuracy, over the seeds of both."""
    if not {method, "batch normalization"} <= set(methods):
        return ""
    return f"{lead(methods[method], methods['batch normalization']):+.1f}"


def lead(own: Cell, norm: Cell) -> float:
    """Returns the mean difference in test accuracy over the seeds of both."""
    return float(np.mean([a - b for a, b in zip(own.test, norm.test, strict=False)]))


def note_of(runs: list[dict[str, Any]]) -> str:
    """Returns a sentence on the statistics that batch normalization was scored with."""
    older = filter(is_earlier, unmixed(runs, ("network", "method")))
    names = list(dict.fromkeys(run["network"] for run in older))
    if not names:
        return "Batch normalization is scored with statistics of training rows, estimated anew."
    return (
        f"Batch normalization was scored by running statistics, of momentum {MOMENTUM:g}, in "
        f"{', '.join(names)}."
    )


def verdict(table: Mapping[str, Mapping[str, Cell]], method: str, classes: int) -> str:
    """Returns the three questions of the plan with their answers for a method."""
    both = {
        network: (methods["batch normalization"], methods[method])
        for network, methods in table.items()
        if {method, "batch normalization"} <= set(methods)
    }
    behind = [n for n, (bn, own) in both.items() if lead(own, bn) < -2]
    chance = [n for n, (_, own) in both.items() if min(own.test) < 200 / classes]
    loud = [
        n
        for n, (bn, own) in both.items()
        if np.mean(own.initial_loss) > 1 + max(math.log(classes), np.mean(bn.initial_loss))
    ]
    named = lambda names: f" ({', '.join(names)})" if names else ""  # noqa: E731
    return (
        f"The {method} is within 2 points of batch normalization or better: "
        f"{len(both) - len(behind)} of {len(both)}{named(behind) and ', without' + named(behind)}. "
        f"At chance under a seed: {len(chance)}{named(chance)}. "
        f"Initial loss too large: {len(loud)}{named(loud)}."
    )


def draw(table: Mapping[str, Mapping[str, Cell]], path: Path, classes: int) -> None:
    """Draws test accuracy and initial loss per network, one mark per seed."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 0.5 * len(table) + 1.6), sharey=True, layout="constrained"
    )
    for index, methods in enumerate(table.values()):
        for place, (method, (color, marker)) in enumerate(STYLES.items()):
            if method not in methods:
                continue
            at = index + 0.2 * (place - 1.5)
            for axes, values in (
                (left, methods[method].test),
                (right, methods[method].initial_loss),
            ):
                axes.plot(values, len(values) * [at], marker, color=color, alpha=0.6, ms=6)
                axes.plot([np.mean(values)] * 2, [at - 0.09, at + 0.09], color=color)
    for method in methods_of(table):
        color, marker = STYLES[method]
        right.plot([], [], marker, color=color, alpha=0.6, ms=6, label=method)
    right.axvline(math.log(classes), color="0.6", zorder=0)
    chance = 100 / classes
    accuracies = [x for methods in table.values() for cell in methods.values() for x in cell.test]
    is_near = min(accuracies) < 3 * chance
    if is_near:
        left.axvline(chance, color="0.6", zorder=0)
    says = "; the line is chance" if is_near else ""
    left.set(xlabel=f"test accuracy, %{says}", yticks=range(len(table)))
    left.set_yticklabels(list(table))
    left.invert_yaxis()
    right.set(xlabel="initial loss; the line is ln(classes)")
    right.legend(loc="lower right", fontsize=9)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write_report(runs: list[dict[str, Any]], out: Path, classes: int) -> None:
    """Writes table.md and table.png, and prints the table."""
    table = cells(runs)
    verdicts = [verdict(table, method, classes) for method in replacements(table)]
    text = "\n\n".join([markdown(table), note_of(runs), *verdicts]) + "\n"
    (out / "table.md").write_text(text, encoding="utf-8")
    draw(table, out / "table.png", classes)
    print(text)
