"""The flags of the command ``bench``."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Bench:
    """Measure what a method costs. Without a name: list the benchmarks.

    step: times of single compiled training steps, of all methods in turn in one run, and the
    operations and memory traffic that the compiler counts. input: rows per second of pictures that
    are read, decoded and cropped while they are used, of the step alone, and of both together.
    """

    name: Positional[str] = ""
    """The benchmark: step, input, papers or compiled."""
    model: str = "cnn9"
    """The network, on random 32 x 32 colour images, the transformer on random characters."""
    methods: str = "none,cwo,bn"
    """Methods, comma-separated. The baseline none is always measured, and twice, as a control."""
    batch_size: int = 128
    """The number of rows per step."""
    channels: int = 64
    """The channels of cnn9's first stage."""
    depth: int = 3
    """The hidden layers of the mlp, the blocks of the transformer."""
    width: int = 256
    """The units of each hidden layer of the mlp, of each token of the transformer."""
    repeats: int = 20
    """The number of rounds; each round runs everything that is compared once."""
    data_dir: Path | None = None
    """The pictures of input: train|test/CLASS/*.jpg of any size, or a TensorFlow dataset's."""
    side: int = 224
    """The side in pixels of the squares that input crops."""
    steps: int = 20
    """The steps of a round of input."""
    out: Path = Path("results/bench")
    """The folder for the .csv files; made if it does not exist."""

    def run(self, command: str) -> None:
        """Runs the benchmark that the flags name, or lists all."""
        from experiments.bench.registry import run_benchmark

        run_benchmark(self.name, self)
