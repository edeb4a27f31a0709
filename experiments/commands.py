"""The commands with their flags; each imports what it needs when it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from experiments.config import NonFinite
from experiments.errors import UserError
from experiments.names import ALL, DEFAULT_METHODS
from experiments.progress import quietly
from experiments.ranges import Count, Epochs, Range
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.settings import Trains, Workers


@dataclass(frozen=True)
class Compare(Workers, Trains):
    """Train one network with each normalizer, on the same splits, and compare.

    Writes results.csv (a row per method and seed; accuracies are fractions from 0 to 1),
    curves.csv (a row per epoch), curves.png and table.md into --out, and prints the table.
    Finished runs are kept there (runs.sqlite) and not trained again: a stopped comparison goes on,
    and more methods and seeds are added to it, also by several programs at once.
    Without flags: the bundled digits, a convolutional network of nine layers, three seeds.
    """

    methods: Annotated[
        str,
        arg(
            help="Methods to compare, comma-separated; the first is the baseline. The command "
            "methods lists them."
        ),
    ] = DEFAULT_METHODS
    seeds: Annotated[int, Range(1, 10**4)] = 3
    """The number of seeds: 0, 1, ... Each has its own split, initialization and batches."""
    out: Path = Path("results/compare")
    """The folder to write to; made if it does not exist."""
    fresh: bool = False
    """Train again the runs that an earlier call with the same settings finished in --out."""
    tune: tuple[str, ...] | None = None
    """First try these values of numeric flags, NAME=VALUE,VALUE,... each, in every combination of
    flags that a method has, on held-out training rows; then compare every method at its best.
    For example: --tune learning-rate=0.02,0.05,0.1 noise=0.1,0.2. Writes tuning.csv, tuning.png."""
    tune_epochs: Epochs | None = None
    """The epochs of a trial of --tune. If it is left out, a trial has as many as a run."""
    quiet: bool = False
    """Print nothing but errors; the files have the results."""

    def run(self, command: str) -> None:
        """Compares the methods."""
        from experiments.methods.table import find_methods

        methods = find_methods(self.methods)
        from experiments.compare import compare
        from experiments.tuning.choose import Tuning
        from experiments.tuning.grid import WANTED, grid_of

        if self.tune == ():
            raise UserError(f"--tune is empty; {WANTED}, or leave it out.")
        if self.tune_epochs is not None and not self.tune:
            raise UserError(
                f"--tune-epochs is {self.tune_epochs}, the length of trials; wanted "
                "--tune with it, or --epochs in its place."
            )
        tuning = Tuning(grid_of(self.tune), self.tune_epochs) if self.tune else None
        seeds = range(self.seeds)
        with quietly(self.quiet):
            compare(self.settings, methods, seeds, self.out, command, self, self.fresh, tuning)


@dataclass(frozen=True)
class Train(Trains):
    """Train one method under one seed.

    Writes results.csv and curves.csv, as compare does, into --out, and prints one row.
    """

    method: Annotated[str, arg(help="The method; the command methods lists them.")] = "cwo"
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """The seed of the split, the initialization, the batches and the noise."""
    out: Path = Path("results/train")
    """The folder to write to; made if it does not exist."""
    checkpoint_dir: str | None = None
    """The folder for checkpoints, which holds one folder for each epoch. With this flag, SIGTERM
    and Ctrl-C save the run at the end of the current epoch and end it; a second signal ends it at
    once."""
    checkpoint_every: Count = 1
    """The epochs between two checkpoints; the last epoch is always saved."""
    keep: Count = 3
    """The number of checkpoints that are kept: the newest."""
    checkpoint_seconds: Annotated[float, Range(0, 10**6)] = 0.0
    """The least seconds between two checkpoints, for epochs that are shorter than a checkpoint
    takes (about 0.1 s). The flag is for runs in one process."""
    resume: bool = False
    """Go on from the newest checkpoint, or begin if there is none. All settings that change numbers
    must be the checkpoint's; the devices may differ. (Under shard_map or pmap, the groups of batch
    normalization are the devices' rows; on other devices, --ghost-groups keeps their number.)"""
    resume_from: Count | None = None
    """Go on from the checkpoint of this epoch, and delete the later ones."""
    skip_nonfinite: bool = False
    """Leave out, and count, the updates that would make a number NaN or infinite. Without this flag
    the run stops at the first such update, and names its step and layer."""
    quiet: bool = False
    """Print nothing but errors; the files have the results."""

    def run(self, command: str) -> None:
        """Trains the method."""
        from experiments.methods.table import find_methods

        methods = find_methods(self.method)
        if len(methods) != 1:
            raise UserError(
                f"--method is {self.method!r}; wanted one name (compare takes several)."
            )
        from experiments.train import train

        nonfinite: NonFinite = "skip" if self.skip_nonfinite else "stop"
        with quietly(self.quiet):
            train(self.settings, methods[0], self.seed, self.out, self._checkpoints(), nonfinite)

    def _checkpoints(self) -> CheckpointSettings | None:
        if self.checkpoint_dir is None:
            if self.resume or self.resume_from is not None:
                raise UserError(
                    "--resume needs a folder; wanted --checkpoint-dir: give the one to resume from."
                )
            return None
        return CheckpointSettings(
            self.checkpoint_dir,
            self.keep,
            self.checkpoint_every,
            self.checkpoint_seconds,
            self.resume,
            self.resume_from,
        )


@dataclass(frozen=True)
class Paper(Workers):
    """Reproduce a table or figure of the five papers: our numbers beside the paper's.

    Writes report.md, results.csv and pictures into --out. With --list: print the items,
    what each of them costs and what the paper reports.
    """

    item: Annotated[
        Positional[str],
        arg(help="PAPER/ITEM, as cwo/tab1, or all for one after the other; --list shows them."),
    ] = ""
    list: bool = False
    """List the items."""
    preset: Literal["smoke", "cpu", "full"] = "cpu"
    """smoke: seconds, to see that it runs; cpu: minutes; full: the paper's protocol."""
    data_dir: Path | None = None
    """The folder of the paper's data, for items that need some."""
    out: Path | None = None
    """The folder to write to. If it is left out, the folder is results/PAPER/ITEM. For all items it
    is the folder above theirs."""
    check: bool = False
    """Train nothing. Print where the protocol of the full preset differs from the paper's text,
    with the place in the text, and what no text states. For a single item, print all that the text
    states, and the parameters, steps and learning rates of its networks."""
    quiet: bool = False
    """Print nothing but errors; the files have the results."""

    def run(self, command: str) -> None:
        """Runs or lists items, or checks their protocols."""
        from experiments.analysis.table import show_table
        from experiments.papers.check import show_check
        from experiments.papers.registry import find_items
        from experiments.papers.run import items_table, run_item

        if self.check:
            show_check(find_items(self.item or ALL))
            return
        if self.list or not self.item:
            show_table(items_table(find_items(ALL)))
            return
        items = find_items(self.item)
        for item in items:
            alone = len(items) == 1 and self.out is not None
            folder = self.out or Path("results")
            out = folder if alone else folder / item.name
            with quietly(self.quiet):
                run_item(item, self.preset, self.data_dir, out, command, self)


@dataclass(frozen=True)
class Report:
    """Gather the reports of the papers' items that have been run into one page.

    With --verdicts: judge the papers' claims instead, by the csv files of the repository's own
    experiments/results, which is then --folder. With --pairs: compare methods two by two over the
    comparisons in FOLDER/SET.
    """

    folder: Path = Path("results")
    """The folder of the reports, as paper writes them: FOLDER/PAPER/ITEM/report.md."""
    verdicts: bool = False
    """Write FOLDER/README.md: each claim with its figures, verdict, reason and links."""
    pairs: str = ""
    """Pairs of methods, FIRST:SECOND,...: write FOLDER/differences.md and .png with the gain of
    each second method over the first in every FOLDER/SET/results.csv of compare."""

    def run(self, command: str) -> None:
        """Writes the page that the flags name."""
        from experiments.analysis.differences import write_pairs
        from experiments.analysis.verdicts.page import write_page
        from experiments.papers.collected import collect
        from experiments.papers.registry import find_items

        if self.pairs:
            count = write_pairs(self.folder, self.pairs)
            print(f"Compared on {count} sets in {self.folder / 'differences.md'}.")
            return
        if self.verdicts:
            count = write_page(self.folder)
            print(f"Judged {count} claims in {self.folder / 'README.md'}.")
            return
        items, out = find_items(ALL), self.folder / "report.md"
        count = collect(items, self.folder, out)
        print(f"Gathered {count} of {len(items)} items in {out}.")


@dataclass(frozen=True)
class Runs:
    """List the finished runs in a folder of train, compare or paper."""

    out: Path = Path("results/compare")
    """The folder, as it was given to that command."""
    csv: Path | None = None
    """Also write this file, with a row for each run."""

    def run(self, command: str) -> None:
        """Prints the runs."""
        from experiments.analysis.finished import show_runs

        show_runs(self.out, self.csv)


@dataclass(frozen=True)
class Methods:
    """List the methods that --methods and --method take, and compare's defaults."""

    def run(self, command: str) -> None:
        """Prints the methods."""
        from experiments.analysis.table import show_table
        from experiments.methods.table import METHODS

        default = DEFAULT_METHODS.split(",")
        rows = [(m.name, m.summary, "yes" * (m.name in default)) for m in METHODS.values()]
        show_table((("method", "what it is", "default"), rows))


@dataclass(frozen=True)
class Datasets:
    """List the data that --dataset reads, their sources, and which are present."""

    def run(self, command: str) -> None:
        """Prints the datasets."""
        from experiments.data.load import describe_sources

        print(describe_sources())
