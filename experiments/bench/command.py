"""The flags of the command ``bench``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from experiments.ranges import Channels, Count, Depth, Range, Width


@dataclass(frozen=True)
class Bench:
    """Measure what a method costs. Without a name: list the benchmarks.

    step: times of single compiled training steps, of all methods in turn in one run, and the
    operations and memory traffic that the compiler counts. input: rows per second of pictures that
    are read, decoded and cropped while they are used, of the step alone, and of both together.
    """

    name: Annotated[Positional[str], arg(help="The benchmark, or all.")] = ""
    model: str = "cnn9"
    """The network, on random 32 x 32 colour images, the transformer on random characters."""
    methods: str = "none,cwo,bn"
    """Methods, comma-separated. The baseline none is always measured, and twice, as a control."""
    batch_size: Count = 128
    """The number of rows per step."""
    channels: Channels = 64
    """The channels of cnn9's first stage."""
    depth: Depth = 3
    """The hidden layers of the mlp, the blocks of the transformer."""
    width: Width = 256
    """The units of each hidden layer of the mlp, of each token of the transformer."""
    repeats: Annotated[int, Range(1, 10**6)] = 20
    """The number of rounds; each round runs everything that is compared once."""
    data_dir: Path | None = None
    """The pictures of input: train|test/CLASS/*.jpg of any size, or a TensorFlow dataset's."""
    side: Annotated[int, Range(1, 2**12)] = 224
    """The side in pixels of the squares that input crops."""
    steps: Count = 20
    """The steps of a round of input."""
    out: Path = Path("results/bench")
    """The folder for the .csv files; made if it does not exist."""

    def run(self, command: str) -> None:
        """Runs the benchmarks that the flags name."""
        from experiments.bench.registry import run_benchmark

        run_benchmark(self.name, self)
