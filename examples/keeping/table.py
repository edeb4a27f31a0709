"""Tables of the probe's rows: accuracy in per cent by variant and rate.

python -m examples.keeping.table ROWS.csv
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

Row = dict[str, str]

#: Settings that the rows of one table share.
SHARED = ("network", "batch", "updates", "warmup", "seed")


def cell(row: Row) -> str:
    """Returns test and held-out accuracy, or that the training was lost."""
    if row["finite"] != "True":
        return "not finite"
    return f"{float(row['test']):.1f} ({float(row['held_out']):.1f})"


def tables(rows: list[Row]) -> Iterator[str]:
    """Yields a title and a table of variants by rates for each group of settings."""
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in SHARED)].append(row)
    for (network, batch, updates, warmup, seed), group in groups.items():
        start = "with warm-up" if warmup == "True" else "without warm-up"
        yield f"**{network}, batches of {batch}, {updates} updates, {start}, seed {seed}**\n"
        rates = sorted({row["rate"] for row in group}, key=float)
        yield "| variant | " + " | ".join(rates) + " |"
        yield "|---|" + len(rates) * "---:|"
        for variant in dict.fromkeys(row["variant"] for row in group):
            cells = {row["rate"]: cell(row) for row in group if row["variant"] == variant}
            yield f"| {variant} | " + " | ".join(cells.get(rate, "") for rate in rates) + " |"
        yield ""


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="ROWS.csv of examples.keeping.probe")
    with parser.parse_args().rows.open(newline="") as file:
        print("\n".join(tables(list(csv.DictReader(file)))))


if __name__ == "__main__":
    main()
