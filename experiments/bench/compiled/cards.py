"""Accelerators: their speed, and the facts that their compilers ask for."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Card(NamedTuple):
    """One accelerator.

    Attributes:
        bandwidth: bytes per second to and from its memory (HBM).
        bfloat16: operations per second in matrix products of bfloat16, without sparsity.
        float32: operations per second in those of float32, in JAX's default precision.
        facts: the description of a GPU that XLA's compiler asks for; empty for a TPU.
    """

    bandwidth: float
    bfloat16: float
    float32: float
    facts: str = ""

    def seconds(self, hbm_bytes: float, flops: float, dtype: str) -> float:
        """Returns the roofline: the larger of the times for the bytes and for the operations."""
        peak = self.bfloat16 if dtype == "bfloat16" else self.float32
        return max(hbm_bytes / self.bandwidth, flops / peak)


_CARDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

TPUS: Mapping[str, Card]
GPUS: Mapping[str, Card]
TPUS, GPUS = (
    {name: Card(**card) for name, card in _CARDS[kind].items()} for kind in ("tpus", "gpus")
)
