"""The command line: parses and runs a command, and turns errors into exit statuses."""

import difflib
import errno
import importlib
import io
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

from experiments.bench.command import Bench
from experiments.commands import Compare, Datasets, Methods, Paper, Report, Runs, Train
from experiments.data.source import find_source
from experiments.errors import Diverged, Stopped, UserError, check_known, unknown
from experiments.help import description, with_words
from experiments.names import (
    ACTIVATIONS,
    ALL,
    AUGMENTATIONS,
    BENCHMARKS,
    ITEMS,
    METHODS,
    MODELS,
    is_from_file,
)
from experiments.ranges import check_ranges
from experiments.settings import Trains

#: The commands by name, in the order of the help; each imports what it needs when it runs.
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

PROGRAM = "python -m experiments"
DESCRIPTION = "Train deep networks with and without batch normalization, and compare."


def run(command: Any, line: str) -> None:
    """Runs a parsed command; raises UserError, before any work, for wrong flags.

    ``line`` is the user's command line, for the reports.
    """
    check_ranges(command)
    _check_names(command)
    _at_home(command).run(line)


def _at_home(command: Any) -> Any:
    """The command with paths and folders of checkpoints whose ``~`` is the user's folder."""
    flags = {each.name: getattr(command, each.name) for each in fields(command)}
    changed = {name: value.expanduser() for name, value in flags.items() if isinstance(value, Path)}
    if folder := flags.get("checkpoint_dir"):
        changed["checkpoint_dir"] = os.path.expanduser(folder)
    return replace(command, **changed)


def _check_names(command: Any) -> None:
    """Raises UserError for misspelt names, before anything slow is imported."""
    flags = command.settings if isinstance(command, Trains) else command
    if isinstance(command, Trains | Bench):
        if isinstance(command, Bench) or not is_from_file(flags.model):
            check_known("model", flags.model, MODELS)
        _check_methods(getattr(command, "methods", getattr(command, "method", "")))
    if isinstance(command, Trains):
        check_known("activation", flags.activation, ACTIVATIONS)
        if flags.augment.partition(":")[0] not in AUGMENTATIONS:
            raise unknown("augmentation", flags.augment, AUGMENTATIONS)
        find_source(flags.dataset)
    if isinstance(command, Bench):
        check_known("benchmark", command.name, (*BENCHMARKS, "compiled", ALL))
    if isinstance(command, Paper):
        check_known("paper item", command.item, (*ITEMS, ALL))


def _check_methods(names: str) -> None:
    """Raises UserError for a name that is close to a method's."""
    for name in map(str.strip, names.split(",")):
        # The table of methods also knows descriptions, such as batchnorm.
        if name not in METHODS and difflib.get_close_matches(name.lower(), METHODS):
            raise unknown("method", name, METHODS)


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
        print(f"jaxnorm {importlib.import_module('jaxnorm').__version__}", flush=True)
        return
    run(_parsed(arguments), shlex.join([*PROGRAM.split(), *arguments]))
    print(end="", flush=True)


def _parsed(arguments: Sequence[str]) -> Any:
    """Parses the arguments; tyro reads each command separately, so that errors name its help."""
    name = arguments[0] if arguments else ""
    if arguments[: len(COMPILED)] == COMPILED:
        compiled = importlib.import_module("experiments.bench.compiled.command").Compiled
        return _read(compiled, arguments[2:], f"{PROGRAM} bench compiled")
    if name in COMMANDS:
        return _read(COMMANDS[name], arguments[1:], f"{PROGRAM} {name}")
    if name and not name.startswith("-"):
        raise unknown("command", name, COMMANDS)
    # A union of types made at run time, which a type checker cannot follow.
    every: Any = None
    for name, command in COMMANDS.items():
        each: Any = Annotated[command, subcommand(name)]
        every = each if every is None else every | each
    return tyro.cli(every, args=arguments, prog=PROGRAM, description=DESCRIPTION)


def _read(command: Any, flags: Sequence[str], program: str) -> Any:
    """Parses one command with its flags."""
    return tyro.cli(with_words(command), args=flags, prog=program, description=description(command))


def _discard_output() -> None:
    """Redirects stdout to nowhere, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escape_unencodable() -> None:
    """Lets stdout print characters that its encoding lacks as \\xb1, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
