"""Tables and pictures of the probe's rows: accuracy in per cent by variant and rate.

python -m examples.keeping.table ROWS.csv [--pictures FOLDER]
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from examples.keeping.stages import GATE
from experiments.analysis.picture import line_style, new_figure, picture
from experiments.analysis.statistics import interval

#: Settings that the rows of one table share.
Setting = tuple[str, str, str, str]

#: Rows by variant and rate, one per seed.
Cells = dict[tuple[str, float], list[dict[str, str]]]

REFERENCE, CALL = "batch normalization", "call"

#: Variants that are drawn together, each in one color in all pictures.
COMPARED = (REFERENCE, CALL, "own", "full", "full predicted", "zero sums .9", "full .997")

#: What a run counts that is not finite: a constant guess.
LOST = 10.0


def grouped(rows: list[dict[str, str]]) -> dict[Setting, Cells]:
    """Returns the rows of each table: of one network, batch size, length and warm-up."""
    groups: dict[Setting, Cells] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        setting = (row["network"], row["batch"], row["updates"], row["warmup"])
        groups[setting][row["variant"], float(row["rate"])].append(row)
    return groups


def accuracy(row: dict[str, str], of: str = "test") -> float:
    """Returns the accuracy of a run."""
    return float(row[of]) if row["finite"] == "True" else LOST


def mean(cell: list[dict[str, str]], of: str = "test") -> float:
    """Returns the mean accuracy over seeds."""
    return float(np.mean([accuracy(row, of) for row in cell]))


def shown(cell: list[dict[str, str]]) -> str:
    """Returns test and held-out accuracy, how many seeds if several, and how many were lost."""
    if not cell:
        return ""
    lost = sum(row["finite"] != "True" for row in cell)
    if lost == len(cell):
        return "not finite" + f" x{lost}" * (lost > 1)
    seeds = f" n={len(cell)}" * (len(cell) > 1) + f", {lost} not finite" * bool(lost)
    return f"{mean(cell):.1f} ({mean(cell, 'held_out'):.1f}){seeds}"


def title(setting: Setting) -> str:
    """Returns the title of a table."""
    network, batch, updates, warmup = setting
    start = "with warm-up" if warmup == "True" else "without warm-up"
    return f"{network}, batches of {batch}, {int(updates):,} updates, {start}"


def table(setting: Setting, cells: Cells) -> Iterator[str]:
    """Yields the lines of a table of variants by rates."""
    rates = sorted({rate for _, rate in cells})
    yield f"**{title(setting)}**\n"
    yield "| variant | " + " | ".join(map(str, rates)) + " |"
    yield "|---|" + len(rates) * "---:|"
    for variant in dict.fromkeys(name for name, _ in cells):
        line = " | ".join(shown(cells.get((variant, rate), [])) for rate in rates)
        yield f"| {variant} | {line} |"
    yield ""


def best(cells: Cells, variant: str) -> list[dict[str, str]]:
    """Returns the runs of a variant at its best rate by the held-out rows; none for none."""
    own = [cell for (name, _), cell in cells.items() if name == variant]
    return max(own, key=lambda cell: mean(cell, "held_out"), default=[])


def difference(cell: list[dict[str, str]], other: list[dict[str, str]]) -> str:
    """Returns the mean of the pairs' differences, with its interval from three seeds on."""
    others = {row["seed"]: accuracy(row) for row in other}
    pairs = np.array([accuracy(r) - others[r["seed"]] for r in cell if r["seed"] in others])
    bounds = interval(pairs) if len(pairs) > 2 else ()
    return f"{pairs.mean():+.1f}" + (f" [{bounds[0]:+.1f}, {bounds[1]:+.1f}]" if bounds else "")


def gate(groups: dict[Setting, Cells]) -> Iterator[str]:
    """Yields the lines of the gate's first part: each variant at its best rate, 1,000 updates."""
    of_network = [groups.get((name, "64", "1000", "True"), {}) for name in GATE]
    variants = dict.fromkeys(name for cells in of_network for name, _ in cells)
    complete = [v for v in variants if all(best(cells, v) for cells in of_network)]
    means = {v: np.mean([mean(best(cells, v)) for cells in of_network]) for v in complete}
    yield "**The gate's first part: 1,000 updates, each at its best rate by the held-out rows**\n"
    yield "| variant | " + " | ".join(GATE) + " | mean | of the gap |"
    yield "|---|" + (len(GATE) + 2) * "---:|"
    for variant in complete:
        entries = []
        for cells in of_network:
            cell, reference = best(cells, variant), best(cells, REFERENCE)
            text = f"{mean(cell):.1f} at {cell[0]['rate']}"
            entries.append(text + f" ({difference(cell, reference)})" * (variant != REFERENCE))
        share = (means[variant] - means[CALL]) / (means[REFERENCE] - means[CALL])
        yield f"| {variant} | {' | '.join(entries)} | {means[variant]:.1f} | {share:.0%} |"
    yield ""


def draw(setting: Setting, cells: Cells, path: Path) -> None:
    """Draws accuracy against rate, a mark per seed: the variants to compare, and the others."""
    known = dict.fromkeys(name for name, _ in cells)
    others = [name for name in known if name not in COMPARED]
    figure = new_figure(columns=2, width=6, height=4.8)
    for axes, names in zip(figure.axes, (COMPARED, (REFERENCE, *others)), strict=True):
        shown_here = [name for name in names if name in known]
        _draw_lines(axes, cells, {name: [*COMPARED, *others].index(name) for name in shown_here})
    figure.suptitle(title(setting))
    path.write_bytes(picture(figure))


def _draw_lines(axes: Any, cells: Cells, variants: dict[str, int]) -> None:
    """Draws a line per variant in the style of its index."""
    for variant, index in variants.items():
        rates = sorted(rate for name, rate in cells if name == variant)
        style = line_style(index)
        axes.plot(rates, [mean(cells[variant, r]) for r in rates], label=variant, **style)
        for rate in rates:
            seeds = [accuracy(row) for row in cells[variant, rate]]
            axes.plot([rate] * len(seeds), seeds, "o", ms=4, color=style["color"])
    every = sorted({rate for _, rate in cells})
    axes.set(xscale="log", xlabel="learning rate", ylabel="test accuracy in %")
    axes.set_ylim(8, axes.get_ylim()[1] + 2)  # room for the highest mark
    axes.set_xticks(every, map(str, every))
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)


def main() -> None:
    """Prints the tables, and draws the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="ROWS.csv of examples.keeping.probe")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures")
    options = parser.parse_args()
    with options.rows.open(newline="") as file:
        groups = grouped(list(csv.DictReader(file)))
    print("\n".join(gate(groups)))
    for setting, cells in groups.items():
        print("\n".join(table(setting, cells)))
        if options.pictures and len({rate for _, rate in cells}) > 1:
            name = "-".join((*setting[:3], "warm-up" if setting[3] == "True" else "at once"))
            draw(setting, cells, options.pictures / f"{name.lower().replace(' ', '-')}.png")


if __name__ == "__main__":
    main()
