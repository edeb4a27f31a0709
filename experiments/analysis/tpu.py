"""Costs of a training step on a TPU, from committed measurements of its compiler's programs."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

COMPILED = Path(__file__).parents[1] / "results" / "compiled"

TARGET, DTYPE = "v5e:4x4", "bfloat16"

NOTE = (
    "TPU bytes: what a step of the same network moves to and from the memory of a TPU, over that\n"
    "without normalization; collectives: its all-reduces and other exchanges between devices\n"
    f"({TARGET}, {DTYPE}). They are read off compiled programs, at the sizes in docs/compiled.md;\n"
    "nothing ran on a TPU."
)


class Cost(NamedTuple):
    """Cost of a step: HBM traffic over that of no normalization, and the number of collectives."""

    traffic: float
    collectives: int


def tpu_costs(model: str) -> Mapping[str, Cost]:
    """Returns the costs by method; empty for a network that was not compiled."""
    file = COMPILED / model / "compiled.csv"
    if not file.is_file():
        return {}
    rows = csv.DictReader(file.read_text().splitlines())
    return {
        row["method"]: Cost(float(row["hbm_ratio"]), int(row["collectives"]))
        for row in rows
        if (row["target"], row["dtype"], row["entry"]) == (TARGET, DTYPE, "jit")
    }
