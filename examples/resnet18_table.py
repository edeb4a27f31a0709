"""Table and curves of trainings by resnet18.py: mean and standard deviation over seeds.

    python examples/resnet18_table.py runs/* --out experiments/results/resnet18

Each folder holds `options.json` and `history.csv`. Trainings that evaluated held-out rows are
listed as trials of their rate. Writes curves.csv, tuning.csv, table.md and curves.png. Trainings
with batch normalization whose options name no statistics were scored by running ones, of momentum
0.9: the table says so, and has no others beside them.
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

#: Order and colours of the networks: Okabe and Ito's palette.
COLOURS = {
    "batch normalization": "#0072B2",
    "replaced": "#CC79A7",
    "replaced, on the sphere": "#D55E00",
    "replaced, loud branches": "#56B4E9",
    "replaced, on the sphere, loud branches": "#E69F00",
    "deleted": "#000000",
    "deleted, quiet branches": "#009E73",
}


class Run(NamedTuple):
    """Options and history of one training."""

    network: str
    options: dict[str, Any]
    history: list[dict[str, float]]


def read(folder: Path) -> Run:
    """Reads a training's folder."""
    options = json.loads((folder / "options.json").read_text())
    with (folder / "history.csv").open() as file:
        history = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    network = {"bn": "batch normalization", "replaced": "replaced", "none": "deleted"}
    words = [network[options["norm"]]]
    words += ["on the sphere"] if options["constraint"] == "sphere" else []
    words += [f"{options['branches']} branches"] if options["branches"] else []
    return Run(", ".join(words), options, history)


def note_of(runs: list[Run]) -> str:
    """Returns a sentence on the statistics that batch normalization was scored with."""
    norm = [run.options for run in runs if run.options["norm"] == "bn"]
    older = [str(options["out"]) for options in norm if "statistics" not in options]
    if not older:
        return "Batch normalization is scored with statistics of training rows, estimated anew."
    if len(older) < len(norm):
        raise SystemExit(
            f"{', '.join(older)}: scored by running statistics of batch normalization, the others "
            "by statistics estimated anew. Train these again in new folders, or leave them out."
        )
    updates = " or ".join(f"{n:,}" for n in sorted({options["updates"] for options in norm}))
    return (
        "Batch normalization was scored by running statistics, of momentum 0.9 over "
        f"{updates} updates."
    )


def numbered(run: Run) -> list[dict[str, Any]]:
    """Returns the history with the network, the rate and the seed in front."""
    first = {"network": run.network, "rate": run.options["rate"], "seed": run.options["seed"]}
    return [first | {key: f"{value:g}" for key, value in row.items()} for row in run.history]


def spread(values: Any, digits: int = 2, sign: str = "") -> str:
    """Returns mean and sample standard deviation."""
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):{sign}.{digits}f}{deviation}"


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes a csv file with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def draw(groups: dict[str, list[Run]], path: Path) -> None:
    """Draws the mean of the seeds, and a band from the lowest to the highest seed."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.subplots(1, 2)
    names = {"loss": "training loss (nats)", "accuracy": "test accuracy (%)"}
    for axes, (key, label) in zip(figure.axes, names.items(), strict=True):
        for network, runs in groups.items():
            updates = [row["update"] for row in runs[0].history]
            values = np.array([[row[key] for row in run.history] for run in runs])
            axes.plot(updates, values.mean(0), color=COLOURS[network], label=network)
            axes.fill_between(
                updates,
                values.min(0),
                values.max(0),
                color=COLOURS[network],
                alpha=0.15,
                linewidth=0,
            )
        axes.set(xlabel="updates", ylabel=label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.axes[1].legend(fontsize=9, frameon=False)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Writes the files and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    runs = sorted((read(f) for f in arguments.folders), key=lambda run: run.options["seed"])
    trials = [run for run in runs if run.options["held_out"]]
    found = defaultdict(list)
    for run in runs:
        if not run.options["held_out"]:
            found[run.network].append(run)
    groups = {network: found[network] for network in COLOURS if network in found}

    first = {run.options["seed"]: run for run in groups["batch normalization"]}
    lines = ["| network | rate | training loss | test, % | average, % | to batch normalization |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for network, group in groups.items():
        last = {key: [run.history[-1][key] for run in group] for key in group[0].history[-1]}
        baseline = [first[run.options["seed"]].history[-1]["accuracy"] for run in group]
        cells = [network, f"{group[0].options['rate']:g}", spread(last["loss"], 3)]
        cells += [spread(last["accuracy"]), spread(last["average_accuracy"])]
        gains = np.subtract(last["accuracy"], baseline)
        cells.append("" if network == "batch normalization" else spread(gains, sign="+"))
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join([*lines, "", note_of(runs)])
    print(table)

    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(f"{table}\n")
    every = [row for group in groups.values() for run in group for row in numbered(run)]
    write(arguments.out / "curves.csv", every)
    if trials:
        write(arguments.out / "tuning.csv", [numbered(run)[-1] for run in trials])
    draw(groups, arguments.out / "curves.png")


if __name__ == "__main__":
    main()
