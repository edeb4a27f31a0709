"""The front page's picture: accuracy against the learning rate.

    python -m examples.keeping.front experiments/results/keeping

FOLDER has rows.csv and gets rates.png: a panel per network, from the rows of 1,000 updates of 64
photographs with warm-up; a mark per seed, a line through their means. Networks in which a method
has no rows at two rates are left out.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

#: Variant, name in the picture, color and line.
SHOWN = (
    ("batch normalization", "batch normalization", "#333333", "-"),
    ("full quiet, zero sums", "moving_average_normalization", "#0072B2", "-"),
    ("call", "normalizer_free", "#D55E00", "--"),
)
ORDER = ("MobileNetV2", "gated MBConv", "bottleneck ResNet")

#: Test accuracies, one per seed, by rate.
ByRate = dict[float, list[float]]


def accuracies(path: Path) -> dict[tuple[str, str], ByRate]:
    """Returns the test accuracies of each network and variant; NaN at chance after NaN."""
    found: dict[tuple[str, str], ByRate] = defaultdict(lambda: defaultdict(list))
    with path.open() as file:
        for row in csv.DictReader(file):
            if (row["batch"], row["updates"], row["warmup"]) == ("64", "1000", "True"):
                test = float(row["test"]) if row["finite"] == "True" else 10.0
                found[row["network"], row["variant"]][float(row["rate"])].append(test)
    return found


def draw(found: dict[tuple[str, str], ByRate], out: Path) -> None:
    """Writes the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    networks = [n for n in ORDER if all(len(found[n, v]) > 1 for v, *_ in SHOWN)]
    figure, axes = plt.subplots(
        1, len(networks), figsize=(3.6 * len(networks), 3.2), squeeze=False, sharey=True
    )
    for axis, network in zip(axes[0], networks, strict=True):
        for variant, name, color, line in SHOWN:
            by_rate = sorted(found[network, variant].items())
            rates = [rate for rate, _ in by_rate]
            axis.plot(
                rates, [np.mean(values) for _, values in by_rate], line, color=color, label=name
            )
            for rate, values in by_rate:
                axis.plot([rate] * len(values), values, "o", color=color, markersize=4)
        axis.set(title=network, xlabel="learning rate (SGD)", xscale="log")
        axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axis.minorticks_off()
        axis.grid(alpha=0.2)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("test accuracy, %")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False
    )
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(out, dpi=120)


def main() -> None:
    """Draws the picture from the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    draw(accuracies(folder / "rows.csv"), folder / "rates.png")


if __name__ == "__main__":
    main()
