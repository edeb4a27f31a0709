"""What is known of the accelerators: how fast they are, and what their compilers ask about them."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Card(NamedTuple):
    """One accelerator.

    Attributes:
        bandwidth: bytes a second to and from its memory (HBM).
        bfloat16: operations a second in matrix products of bfloat16, without sparsity.
        float32: the same of float32, in the precision that JAX takes if none is asked for.
        facts: of a GPU, what XLA's compiler asks about it; a TPU's compiler knows its own.
    """

    bandwidth: float
    bfloat16: float
    float32: float
    facts: str = ""

    def seconds(self, hbm_bytes: float, flops: float, dtype: str) -> float:
        """The roofline: a step takes at least as long as its bytes, and as its operations."""
        peak = self.bfloat16 if dtype == "bfloat16" else self.float32
        return max(hbm_bytes / self.bandwidth, flops / peak)


_KNOWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

TPUS: Mapping[str, Card]
GPUS: Mapping[str, Card]
TPUS, GPUS = (
    {name: Card(**card) for name, card in _KNOWN[kind].items()} for kind in ("tpus", "gpus")
)
