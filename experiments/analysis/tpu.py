"""Costs of a training step on a TPU, from committed measurements of its compiler's programs."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.config import Config
from experiments.data.bundled import LENGTH
from experiments.models.registry import takes_tokens

COMPILED = Path(__file__).parents[1] / "results" / "compiled"

TARGET, DTYPE = "v5e:4x4", "bfloat16"

NOTE = (
    "TPU bytes: what a step of the same network moves to and from the memory of a TPU, over that\n"
    "without normalization; collectives: its all-reduces and other exchanges between devices\n"
    f"({TARGET}, {DTYPE}). They are read off programs that were compiled for this network, its\n"
    "sizes and those of its rows; nothing ran on a TPU."
)


class Cost(NamedTuple):
    """Cost of a step: HBM traffic over that of no normalization, and the number of collectives."""

    traffic: float
    collectives: int


def input_shape(model: str) -> tuple[int, ...]:
    """Returns the shape of the rows that a model's step is compiled for."""
    if takes_tokens(model):
        return (LENGTH,)
    return (224, 224, 3) if model == "resnet50" else (32, 32, 3)


def tpu_costs(config: Config, shape: Sequence[int]) -> Mapping[str, Cost]:
    """Returns the costs by method; empty for a network that was not compiled at these sizes."""
    file = COMPILED / config.model / "compiled.csv"
    if not file.is_file() or tuple(shape) != input_shape(config.model):
        return {}
    sizes = [str(size) for size in (config.channels, config.depth, config.width)]
    rows = csv.DictReader(file.read_text().splitlines())
    return {
        row["method"]: Cost(float(row["hbm_ratio"]), int(row["collectives"]))
        for row in rows
        if (row["target"], row["dtype"]) == (TARGET, DTYPE)
        and [row["channels"], row["depth"], row["width"]] == sizes
    }
