"""The flags of the command ``bench compiled``."""

from dataclasses import dataclass
from pathlib import Path

from experiments.bench.compiled.spec import Spec


@dataclass(frozen=True)
class Compiled(Spec):
    """Compile for TPUs or GPUs that are not there, and read the costs off the program.

    The compilers run on any machine, without a device, and what they print is the same on every
    machine: the bytes to and from the memory of each device (HBM), the kernels that it starts, the
    collectives in which devices exchange numbers. Bytes and operations are shown over those of
    the step without normalization (none). The compilers are extras that want an environment of
    their own: pip install -e '.[compile-tpu]', or '.[compile-gpu]'.

    est. ms is an estimate: bytes over the card's bandwidth, or operations over its peak, whichever
    takes longer. A step takes at least that long; it was not run.

    Each row is added to compiled.csv as soon as it is measured.

    Example: python -m experiments bench compiled --target v5e:4x4 --model cnn9 --rows-per-device
    1024 --methods none,bn,cwo --jobs 2
    """

    methods: str = ""
    """The names to compare, comma-separated. For step: the methods that the command methods lists,
    and nnx.BatchNorm, nnx.LayerNorm; a name with +private behind it takes gradients of single rows.
    If the flag is left out: none,bn,gn,cwo,lcw,vcl,normprop,wn for step, and all for update and
    effective. The baseline is always compiled."""
    jobs: int = 1
    """The number of compilations at once; each keeps about one core busy and takes 1 to 4 GB."""
    fresh: bool = False
    """Compile again what compiled.csv has already."""
    out: Path = Path("results/bench/compiled")
    """The folder for compiled.csv and table.md; made if it does not exist."""
