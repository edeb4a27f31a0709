"""The commands and their flags, as records.

They import nothing that takes long; `cli.py` imports what a command needs when it runs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from tyro.conf import OmitArgPrefixes, Positional

from experiments.config import Config, Workers
from experiments.listed import DEFAULT_METHODS
from experiments.runs.checkpoint_settings import CheckpointSettings

#: The name of all items of the papers.
ALL = "all"


@dataclass(frozen=True)
class Compare:
    """Train one network with each normalizer, on the same splits, and compare.

    Writes results.csv (a row per method and seed; accuracies are fractions from 0 to 1),
    curves.csv (a row per epoch), curves.png and table.md into --out, and prints the table.
    Finished runs are kept there (runs.sqlite) and not trained again: a stopped comparison goes on,
    and more methods and seeds are added to it, also by several programs at once.
    Several networks (--model A,B) have a folder each in --out, and their differences are pooled.
    Without flags: the bundled digits, a convolutional network of nine layers whose first stage has
    8 channels, four methods and twelve seeds.
    """

    methods: str = DEFAULT_METHODS
    """Methods to compare, comma-separated; the first is the baseline. The command methods lists
    them."""
    seeds: int = 12
    """The number of seeds: 0, 1, ... Each has its own split, initialization and batches."""
    out: Path = Path("results/compare")
    """The folder to write to; made if it does not exist."""
    fresh: bool = False
    """Train again the runs that an earlier call with the same settings finished in --out."""
    tune: tuple[str, ...] | None = None
    """First try these values of numeric flags, NAME=VALUE,VALUE,... each, in every combination of
    flags that a method has, on held-out training rows; then compare every method at its best. For
    example: --tune learning-rate=0.02,0.05,0.1 noise=0.1,0.2. Writes tuning.csv, tuning.png, and
    rates.png if the rate is among them."""
    tune_epochs: int | None = None
    """The epochs of a trial of --tune. If it is left out, a trial has as many as a run."""
    tune_seeds: int | None = None
    """The number of seeds of --tune, whose mean accuracy chooses for all seeds. If it is left out,
    each seed chooses for itself."""
    settings: Path | None = None
    """A file of these flags, FILE.toml, as seeds = 3 or methods = ["bn", "gn"]; --tune may be a
    table. Flags of the command line replace the file's. It is copied into --out."""
    quiet: bool = False
    """Print nothing but errors; the files have the results."""
    traceback: bool = False
    """Show the whole trace of an error, as of a network of your own."""
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    config: OmitArgPrefixes[Config] = field(default_factory=partial(Config, channels=8))


@dataclass(frozen=True)
class Train:
    """Train one method under one seed.

    Writes results.csv and curves.csv, as compare does, into --out, and prints one row.
    """

    method: str = "cwo"
    """The method; the command methods lists them."""
    seed: int = 0
    """The seed of the split, the initialization, the batches and the noise."""
    out: Path = Path("results/train")
    """The folder to write to; made if it does not exist."""
    skip_nonfinite: bool = False
    """Leave out, and count, the updates that would make a number NaN or infinite. Without this flag
    the run stops at the first such update, and names its step and layer."""
    quiet: bool = False
    """Print nothing but errors; the files have the results."""
    traceback: bool = False
    """Show the whole trace of an error, as of a network of your own."""
    checkpoints: OmitArgPrefixes[CheckpointSettings] = field(default_factory=CheckpointSettings)
    config: OmitArgPrefixes[Config] = field(default_factory=Config)


@dataclass(frozen=True)
class Paper:
    """Reproduce a table or figure of the five papers: our numbers beside the paper's.

    Writes report.md, results.csv, curves.csv and pictures into --out. With --list: print the items,
    what each of them costs and what the paper reports.
    """

    item: Positional[str] = ""
    """PAPER/ITEM, as cwo/tab1, or all for one after the other; --list shows them."""
    list: bool = False
    """List the items."""
    preset: Literal["smoke", "cpu", "full"] = "cpu"
    """smoke: seconds, to see that it runs; cpu: minutes; full: the paper's protocol."""
    data_dir: Path | None = None
    """The folder of the paper's data, for items that need some."""
    set: tuple[str, ...] = ()
    """Settings in the place of the preset's, as the report lists them: --set learning_rate=0.05
    seeds=10; several values stand with semicolons between them."""
    out: Path | None = None
    """The folder to write to. If it is left out, the folder is results/PAPER/ITEM. For all items it
    is the folder above theirs."""
    quiet: bool = False
    """Print nothing but errors; the files have the results."""
    traceback: bool = False
    """Show the whole trace of an error, as of a network of your own."""
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)


@dataclass(frozen=True)
class Report:
    """Gather the reports of the papers' items that have been run into one page.

    With --verdicts: judge the papers' claims instead, by the csv files of the repository's own
    experiments/results, which is then --folder. With --pairs: compare methods two by two over the
    comparisons in FOLDER/SET. With --items: list all items with the reports below --folder.
    """

    folder: Path = Path("results")
    """The folder of the reports, as paper writes them: FOLDER/PAPER/ITEM/report.md."""
    verdicts: bool = False
    """Write FOLDER/README.md: each claim with its figures, verdict, reason and links."""
    items: bool = False
    """Write FOLDER/items/README.md: each item with its state, findings, picture and command."""
    pairs: str = ""
    """Pairs of methods, FIRST:SECOND,...: write FOLDER/differences.md and .png with the gain of
    each second method over the first in every FOLDER/SET/results.csv of compare."""


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


@dataclass(frozen=True)
class Runs:
    """List the finished runs in a folder of train, compare or paper."""

    folder: Positional[Path] = Path("results/compare")
    """The --out of that command."""
    csv: Path | None = None
    """Also write this file, with a row for each run."""


@dataclass(frozen=True)
class Methods:
    """List the methods that --methods and --method take, and compare's defaults."""


@dataclass(frozen=True)
class Datasets:
    """List the data that --dataset reads, their sources, and which are present."""


#: The commands by name, in the order of the help.
COMMANDS: Mapping[str, type] = {
    **{"compare": Compare, "train": Train, "paper": Paper, "report": Report, "bench": Bench},
    **{"runs": Runs, "methods": Methods, "datasets": Datasets},
}
