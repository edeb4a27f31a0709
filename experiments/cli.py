"""The command line: from what the user typed to a command, and from its end to a status."""

import difflib
import errno
import importlib
import io
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

from experiments.bench.command import Bench
from experiments.commands import Compare, Datasets, Methods, Paper, Report, Runs, Train
from experiments.data.source import check_source
from experiments.errors import Diverged, Stopped, UserError, check_known, unknown
from experiments.help import description, with_words
from experiments.names import ACTIVATIONS, ALL, AUGMENTATIONS, BENCHMARKS, ITEMS, METHODS, MODELS
from experiments.ranges import check_ranges
from experiments.settings import Trains

#: The commands by name, in the order of the help; what they run is imported when they run.
COMMANDS: Mapping[str, type] = {
    **{"compare": Compare, "train": Train, "paper": Paper, "report": Report, "bench": Bench},
    **{"runs": Runs, "methods": Methods, "datasets": Datasets},
}

#: The number of the signal that ends a program whose output nobody reads; Windows has none.
SIGPIPE = 13

#: Why the system writes no more: the disk or the user's share of it is full, or the file too large.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: The benchmark that has flags of its own.
COMPILED = ["bench", "compiled"]

PROGRAM = "python -m experiments"
DESCRIPTION = "Train deep networks with and without batch normalization, and compare."


def run(command: Any, line: str) -> None:
    """Runs a parsed command; raises UserError, before any work, for wrong flags.

    ``line`` is what the user typed, for the reports.
    """
    check_ranges(command)
    _check_names(command)
    command.run(line)


def _check_names(command: Any) -> None:
    """Raises UserError for names that are misspelt, before what they name is imported."""
    flags = command.settings if isinstance(command, Trains) else command
    if isinstance(command, Trains | Bench):
        check_known("model", flags.model, MODELS)
        _check_methods(getattr(command, "methods", getattr(command, "method", "")))
    if isinstance(command, Trains):
        check_known("activation", flags.activation, ACTIVATIONS)
        if flags.augment.partition(":")[0] not in AUGMENTATIONS:
            raise unknown("augmentation", flags.augment, AUGMENTATIONS)
        check_source(flags.dataset)
    if isinstance(command, Bench):
        check_known("benchmark", command.name, (*BENCHMARKS, "compiled", ALL))
    if isinstance(command, Paper):
        check_known("paper item", command.item, (*ITEMS, ALL))


def _check_methods(names: str) -> None:
    """Raises UserError for a name that is nearly a method's."""
    for name in map(str.strip, names.split(",")):
        # A description, as batchnorm, is for the table of methods to understand.
        if name not in METHODS and difflib.get_close_matches(name.lower(), METHODS):
            raise unknown("method", name, METHODS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit status.

    That is 0; after one line on stderr 2 for a user's error, 1 for a run that diverged and for
    output that cannot be written, and 128 + the signal's number for a run that was stopped, or
    whose output nobody reads any more.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _print_anything()
    try:
        _run_line(arguments)
    except BrokenPipeError:  # As of ``| head``: whoever read has enough.
        _print_nowhere()
        return 128 + SIGPIPE
    except OSError as error:
        if error.errno not in FULL:
            raise
        _print_nowhere()
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
    """Runs what the user typed; whatever is printed has been written when it returns."""
    if arguments == ["--version"]:
        print(f"jaxnorm {importlib.import_module('jaxnorm').__version__}", flush=True)
        return
    run(_parsed(arguments), shlex.join([*PROGRAM.split(), *arguments]))
    print(end="", flush=True)


def _parsed(arguments: Sequence[str]) -> Any:
    """The command with its flags, each kind of which tyro reads by itself: it names its help."""
    name = arguments[0] if arguments else ""
    if arguments[: len(COMPILED)] == COMPILED:
        compiled = importlib.import_module("experiments.bench.compiled.command").Compiled
        return _read(compiled, arguments[2:], f"{PROGRAM} bench compiled")
    if name in COMMANDS:
        return _read(COMMANDS[name], arguments[1:], f"{PROGRAM} {name}")
    if name and not name.startswith("-"):
        raise unknown("command", name, COMMANDS)
    # What tyro reads; a type that is made here is none to a type checker.
    every: Any = None
    for name, command in COMMANDS.items():
        each: Any = Annotated[command, subcommand(name)]
        every = each if every is None else every | each
    return tyro.cli(every, args=arguments, prog=PROGRAM, description=DESCRIPTION)


def _read(command: Any, flags: Sequence[str], program: str) -> Any:
    """One command with its flags."""
    return tyro.cli(with_words(command), args=flags, prog=program, description=description(command))


def _print_nowhere() -> None:
    """Lets the flush at the end not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_anything() -> None:
    """Lets stdout show as \\xb1 what its encoding does not have: results are not lost to a ±."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
