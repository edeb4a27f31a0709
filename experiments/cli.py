"""The command line: parses and runs a command, and turns errors into exit statuses."""

import contextlib
import errno
import inspect
import io
import os
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import docstring_parser
import tyro
from tyro.conf import OmitArgPrefixes, Positional
from tyro.extras import subcommand_cli_from_dict

import jaxnorm
from experiments.analysis.differences import write_pairs
from experiments.analysis.finished import show_runs
from experiments.analysis.table import show_table
from experiments.analysis.verdicts.page import write_page
from experiments.augmentation.table import AUGMENTATIONS
from experiments.bench.command import Bench
from experiments.bench.compiled.command import Compiled
from experiments.compare import Compare
from experiments.config import Config, UserError, Workers, check_known, check_ranges, unknown
from experiments.data.load import describe_sources, find_source
from experiments.methods.table import DEFAULT_METHODS, METHODS
from experiments.models.from_file import is_from_file
from experiments.models.registry import MODELS
from experiments.models.style import ACTIVATIONS
from experiments.papers.collected import collect
from experiments.papers.items import ALL, find_items
from experiments.papers.run import items_table, run_item
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.processes import joined
from experiments.runs.progress import quietly
from experiments.runs.signals import Stopped
from experiments.train import Train
from experiments.training.fit import Diverged


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
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)

    def run(self, command: str) -> None:
        """Runs or lists items."""
        if self.list or not self.item:
            show_table(items_table(find_items(ALL)))
            return
        items = find_items(self.item)
        for item in items:
            alone = len(items) == 1 and self.out is not None
            folder = self.out or Path("results")
            out = folder if alone else folder / item.name
            run_item(item, self.preset, self.data_dir, out, command, self.workers, self.set)


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

    folder: Positional[Path] = Path("results/compare")
    """The --out of that command."""
    csv: Path | None = None
    """Also write this file, with a row for each run."""

    def run(self, command: str) -> None:
        """Prints the runs."""
        show_runs(self.folder, self.csv)


@dataclass(frozen=True)
class Methods:
    """List the methods that --methods and --method take, and compare's defaults."""

    def run(self, command: str) -> None:
        """Prints the methods."""
        default = DEFAULT_METHODS.split(",")
        rows = [(m.name, m.summary, "yes" * (m.name in default)) for m in METHODS.values()]
        show_table((("method", "what it is", "default"), rows))


@dataclass(frozen=True)
class Datasets:
    """List the data that --dataset reads, their sources, and which are present."""

    def run(self, command: str) -> None:
        """Prints the datasets."""
        print(describe_sources())


#: The commands by name, in the order of the help.
COMMANDS: Mapping[str, type] = {
    **{"compare": Compare, "train": Train, "paper": Paper, "report": Report, "bench": Bench},
    **{"runs": Runs, "methods": Methods, "datasets": Datasets},
}

#: The number of the signal to a program whose output is no longer read; Windows has none.
SIGPIPE = 13

#: Errors of full storage: the disk or the user's quota is full, or the file too large.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: The benchmark with its own flags.
COMPILED = ["bench", "compiled"]

#: Flags of other commands that people try, and the way to the same.
ELSEWHERE = {
    ("compare", "--resume"): "compare goes on by itself with the same --out",
    ("compare", "--data-dir"): "give the path as --dataset",
    ("train", "--data-dir"): "give the path as --dataset",
}

PROGRAM = "python -m experiments"
DESCRIPTION = "Train deep networks with and without batch normalization, and compare."


def run(command: Any, line: str) -> None:
    """Runs a parsed command; raises UserError, before any work, for wrong flags.

    ``line`` is the user's command line, for the reports.
    """
    check_ranges(command, type(command)())
    if hasattr(command, "config"):
        _check_names(command.config)
    trains = isinstance(command, Compare | Train)
    with (
        quietly(getattr(command, "quiet", False)),
        joined(command.config) if trains else contextlib.nullcontext(),
    ):
        at_home(command).run(line)


def at_home(flags: Any) -> Any:
    """Returns flags with the user's folder for ``~`` in paths and folders of checkpoints."""
    changed: dict[str, Any] = {}
    for each in fields(flags):
        value = getattr(flags, each.name)
        if is_dataclass(value):
            changed[each.name] = at_home(value)
        elif isinstance(value, Path) or (value and each.name == "checkpoint_dir"):
            changed[each.name] = type(value)(os.path.expanduser(value))
    return replace(flags, **changed)


def _check_names(config: Config) -> None:
    """Raises UserError for misspelt names, before data are loaded."""
    if not is_from_file(config.model):
        check_known("model", config.model, MODELS)
    check_known("activation", config.activation, ACTIVATIONS)
    if config.augment.partition(":")[0] not in AUGMENTATIONS:
        raise unknown("augmentation", config.augment, AUGMENTATIONS)
    find_source(config.dataset)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit status.

    The status is 0 for success. After one line on stderr it is 2 for a user's error, 1 for a run
    that diverged or for output that cannot be written, and 128 + the signal's number for a run that
    was stopped, or whose output is no longer read.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _escape_unencodable()
    try:
        _run_line(arguments)
    except BrokenPipeError:  # The reader, such as ``| head``, has closed the pipe.
        _discard_output()
        return 128 + SIGPIPE
    except OSError as error:
        if error.errno not in FULL:
            raise
        _discard_output()
        print(
            f"error: cannot write: {error.strerror}; free space or write to another place.",
            file=sys.stderr,
        )
        return 1
    except (UserError, Diverged) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1 if isinstance(error, Diverged) else 2
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("stopped; the files hold the runs that were finished.", file=sys.stderr)
        return 130
    return 0


def _run_line(arguments: Sequence[str]) -> None:
    """Runs the arguments; whatever they print is flushed before it returns."""
    if arguments == ["--version"]:
        print(f"jaxnorm {jaxnorm.__version__}", flush=True)
        return
    run(_parsed(arguments), shlex.join([*PROGRAM.split(), *arguments]))
    print(end="", flush=True)


def _parsed(arguments: Sequence[str]) -> Any:
    """Parses the arguments; tyro reads each command separately, so that errors name its help."""
    name = arguments[0] if arguments else ""
    if arguments[: len(COMPILED)] == COMPILED:
        return _read(Compiled, arguments[2:], f"{PROGRAM} bench compiled")
    for flag in (each.partition("=")[0].replace("_", "-") for each in arguments):
        if way := ELSEWHERE.get((name, flag)):
            raise UserError(f"{name} has no {flag}: {way}.")
    if name in COMMANDS:
        return _read(COMMANDS[name], arguments[1:], f"{PROGRAM} {name}")
    if name and not name.startswith("-"):
        raise unknown("command", name, COMMANDS)
    named: dict[str, Any] = dict(COMMANDS)
    return subcommand_cli_from_dict(named, prog=PROGRAM, description=DESCRIPTION, args=arguments)


def _read(command: Any, flags: Sequence[str], program: str) -> Any:
    """Parses one command with its flags.

    tyro takes the indentation of docstrings for line breaks: lines are joined here, and the
    command's own are wrapped to the width of the flags.
    """
    for kind in filter(is_dataclass, (*command.__mro__, Config, Workers, CheckpointSettings)):
        for words in docstring_parser.parse_from_object(kind).params:
            flag = kind.__dataclass_fields__[words.arg_name]
            joined = {"help": " ".join((words.description or "").split())}
            flag.metadata = MappingProxyType({**flag.metadata, **joined})
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    fill = partial(textwrap.fill, width=80, subsequent_indent=" ", break_on_hyphens=False)
    text = "\n\n".join(map(fill, paragraphs))
    return tyro.cli(command, args=flags, prog=program, description=text)


def _discard_output() -> None:
    """Redirects stdout to nowhere, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escape_unencodable() -> None:
    """Lets stdout print characters that its encoding lacks as \\xb1, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
