"""The command line: from what the user typed to a command, and from its end to a status."""

import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

from experiments.bench.command import Bench
from experiments.bench.compiled.command import Compiled
from experiments.checkpoints.signals import Stopped
from experiments.commands import Compare, Datasets, Methods, Paper, Report, Runs, Train
from experiments.errors import Diverged, UserError
from experiments.grouped import flat, grouped
from experiments.ranges import check_ranges
from jaxnorm import __version__

#: What tyro reads; a type that is made here is none to a type checker.
COMMANDS: Any = (
    Annotated[grouped(Compare), subcommand("compare")]
    | Annotated[grouped(Train), subcommand("train")]
    | Annotated[Paper, subcommand("paper")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Runs, subcommand("runs")]
    | Annotated[Methods, subcommand("methods")]
    | Annotated[Datasets, subcommand("datasets")]
)

#: The number of the signal that ends a program whose output nobody reads; Windows has none.
SIGPIPE = 13

#: The benchmark that has flags of its own.
COMPILED = ["bench", "compiled"]

DESCRIPTION = "Train deep networks with and without batch normalization, and compare."


def run(command: Any, line: str) -> None:
    """Runs a parsed command; raises UserError, before any work, for flags out of range.

    ``line`` is what the user typed, for the reports.
    """
    check_ranges(command)
    command.run(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit status.

    That is 0; after one line on stderr 2 for a user's error, 1 for a run that diverged, and 128 +
    the signal's number for one that was stopped, or whose output nobody reads any more.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _print_anything()
    try:
        _run_line(arguments)
    except BrokenPipeError:
        # As of ``| head``: whoever read has enough, and the flush at the end must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + SIGPIPE
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
        print(f"jaxnorm {__version__}", flush=True)
        return
    program = "python -m experiments"
    if arguments[: len(COMPILED)] == COMPILED:
        rest, program = arguments[len(COMPILED) :], " ".join([program, *COMPILED])
        command: Any = tyro.cli(Compiled, args=rest, prog=program)
    else:
        command = tyro.cli(COMMANDS, args=arguments, prog=program, description=DESCRIPTION)
    run(flat(command), shlex.join(["python", "-m", "experiments", *arguments]))
    print(end="", flush=True)


def _print_anything() -> None:
    """Lets stdout show as \\xb1 what its encoding does not have: results are not lost to a ±."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
