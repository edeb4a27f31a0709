"""The command line: parses and runs a command, and turns errors into exit statuses.

A command imports what it needs when it runs, so that help and refusals come at once.
"""

import contextlib
import errno
import inspect
import io
import itertools
import os
import re
import shlex
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import docstring_parser
import tyro
from tyro.extras import subcommand_cli_from_dict

from experiments import listed
from experiments.bench.compiled.flags import Compiled
from experiments.commands import (
    COMMANDS,
    Bench,
    Compare,
    Datasets,
    Methods,
    Paper,
    Report,
    Runs,
    Train,
)
from experiments.config import Config, Workers
from experiments.errors import UserError, unknown
from experiments.models.own_code import own_code
from experiments.names import check_names, check_values
from experiments.ranges import check_ranges
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.progress import quietly
from experiments.runs.signals import KEPT, KEPT_FRESH, Stopped, stopping
from experiments.settings_file import flags_of, named
from experiments.training.run import Diverged

#: The number of the signal to a program whose output is no longer read; Windows has none.
SIGPIPE = 13

#: Errors of full storage: the disk or the user's quota is full, or the file too large.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Errors of rights and names, of files and folders to read and to write.
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)

#: The benchmark with its own flags.
COMPILED = ["bench", "compiled"]

#: The flag that shows where an error comes from.
TRACEBACK = "--traceback"

PROGRAM = "python -m experiments"
DESCRIPTION = "Train deep networks with and without batch normalization, and compare."


def run(command: Any, line: str) -> None:
    """Runs a parsed command; raises UserError, before any work, for wrong flags.

    ``line`` is the user's command line, for the reports.
    """
    _check(command)
    model = command.config.model if isinstance(command, Compare | Train) else ""
    with _denied(), quietly(getattr(command, "quiet", False)):
        if isinstance(command, Compare | Train):
            _import_jax()
        with _several_processes(command), own_code(model):
            if isinstance(command, Compare | Train):
                _check_devices()
            _work(at_home(command), line)


def _check(command: Any) -> None:
    """Raises UserError for a flag out of its range, or a name that is none."""
    check_ranges(command, type(command)())
    check_names(command)


def _work(flags: Any, line: str) -> None:
    """Runs a command with what it needs, which is imported here."""
    match flags:
        case Compare():
            from experiments.compare import compare

            compare(flags, line)
        case Train():
            from experiments.train import train

            train(flags)
        case Paper():
            from experiments.papers.command import reproduce

            reproduce(flags, line)
        case Report():
            from experiments.papers.command import gather

            gather(flags)
        case Bench():
            from experiments.bench.registry import run_benchmark

            run_benchmark(flags.name, flags)
        case Compiled():
            from experiments.bench.compiled.command import compile_and_show

            compile_and_show(flags)
        case Runs():
            from experiments.analysis.finished import show_runs

            show_runs(flags.folder, flags.csv)
        case Methods():
            show_methods()
        case Datasets():
            from experiments.data.load import describe_sources

            print(describe_sources())


def show_methods() -> None:
    """Prints the methods, and which of them are compared by default."""
    from experiments.analysis.table import show_table

    default = listed.DEFAULT_METHODS.split(",")
    rows = [(name, words, "yes" * (name in default)) for name, words in listed.methods().items()]
    show_table((("method", "what it is", "default"), rows))


@contextlib.contextmanager
def _denied() -> Iterator[None]:
    """Turns the system's refusal to read or write a file into a UserError."""
    try:
        yield
    except OSError as error:
        if error.errno not in DENIED:
            raise
        raise UserError(
            f"the system refuses {str(error.filename or 'a file')[:200]}: {error.strerror}; wanted "
            "one that this user may use: change its rights, or give another."
        ) from error


def _import_jax() -> None:
    """Imports JAX for a training; raises UserError if JAX refuses the variables of its options."""
    try:
        import jax
    except (ImportError, ValueError) as error:
        raise _no_jax(error) from error
    options: Any = jax.config
    if options.jax_disable_jit:
        raise UserError(
            "JAX_DISABLE_JIT is set, and a training is compiled; wanted it unset, or 0."
        )


def _check_devices() -> None:
    """Raises UserError if JAX finds no device, as of a platform that is not there.

    Several processes have joined before, as JAX asks for.
    """
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise _no_jax(error) from error


def _no_jax(error: Exception) -> UserError:
    found = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("JAX_")}
    variables = ", ".join(f"{name}={value}" for name, value in found.items())
    return UserError(
        f"JAX does not start: {str(error) or 'it finds no device of its platform'} (set: "
        f"{variables or 'no variable JAX_...'}); wanted variables that it knows, of devices that "
        "are here: mend or unset them."
    )


@contextlib.contextmanager
def _several_processes(command: Any) -> Iterator[None]:
    """Makes a training one of several processes if flags or the cluster say so.

    A training that is asked to end says how it goes on.
    """
    with contextlib.ExitStack() as stack:
        alone = True
        if isinstance(command, Compare | Train):
            from experiments.runs.processes import joined

            alone = stack.enter_context(joined(command.config)) == 1
        if alone and isinstance(command, Compare | Train | Paper):
            stack.enter_context(stopping(way_on(command)))
        yield


def way_on(command: Any) -> str:
    """Says what a stopped command leaves, and what the same command then does."""
    if isinstance(command, Compare | Paper):
        return KEPT_FRESH if getattr(command, "fresh", False) else KEPT
    if folder := command.checkpoints.checkpoint_dir:
        last = f"the last checkpoint in {folder}, and begins anew if there is none"
        return f"the same command with --resume goes on from {last}"
    return "the same command begins anew; with --checkpoint-dir and --resume it goes on"


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
        if TRACEBACK in arguments:
            traceback.print_exception(error)
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1 if isinstance(error, Diverged) else 2
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return 0


def _run_line(arguments: Sequence[str]) -> None:
    """Runs the arguments; whatever they print is flushed before it returns."""
    if arguments == ["--version"]:
        print(f"jaxnorm {listed.version()}", flush=True)
        return
    run(_parsed(arguments), shlex.join([*PROGRAM.split(), *arguments]))
    print(end="", flush=True)


def _parsed(arguments: Sequence[str]) -> Any:
    """Parses the arguments; tyro reads each command separately, so that errors name its help."""
    name = arguments[0] if arguments else ""
    if arguments[: len(COMPILED)] == COMPILED:
        return _read(Compiled, arguments[2:], f"{PROGRAM} bench compiled")
    if name in COMMANDS:
        command = _read(COMMANDS[name], arguments[1:], f"{PROGRAM} {name}")
        return _with_settings(command, arguments[1:]) if isinstance(command, Compare) else command
    if name not in ("", "-h", "--help"):
        if name.startswith("-"):
            raise UserError(f"{name} comes before the command; wanted {PROGRAM} COMMAND {name} ...")
        raise unknown("command", name, COMMANDS)
    named: dict[str, Any] = dict(COMMANDS)
    return subcommand_cli_from_dict(named, prog=PROGRAM, description=DESCRIPTION, args=arguments)


def _with_settings(command: Compare, flags: Sequence[str]) -> Compare:
    """Returns the command with the flags of its settings file where ``flags`` has no others."""
    if command.settings is None:
        return command
    with named(command.settings):
        defaults = _read(Compare, flags_of(command.settings), f"{PROGRAM} compare")
    both: Compare = _read(Compare, flags, f"{PROGRAM} compare", defaults)
    _check(command)
    with named(command.settings):  # The flags of the command line alone are right.
        _check(both)
    return both


def _read(command: Any, flags: Sequence[str], program: str, default: Any = None) -> Any:
    """Parses one command with its flags; a wrong one is a UserError of one line.

    tyro takes the indentation of docstrings for line breaks: lines are joined here, and the
    command's own are wrapped to the width of the flags.
    """
    check_values(flags)
    for kind in filter(is_dataclass, (*command.__mro__, Config, Workers, CheckpointSettings)):
        for words in docstring_parser.parse_from_object(kind).params:
            flag = kind.__dataclass_fields__[words.arg_name]
            joined = {"help": " ".join((words.description or "").split())}
            flag.metadata = MappingProxyType({**flag.metadata, **joined})
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    fill = partial(textwrap.fill, width=80, subsequent_indent=" ", break_on_hyphens=False)
    text = "\n\n".join(map(fill, paragraphs))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            defaults = {} if default is None else {"default": default}
            return tyro.cli(command, args=flags, prog=program, description=text, **defaults)
    except SystemExit as ended:
        if not ended.code:  # After the help.
            raise
        raise UserError(f"{_in_one_line(said.getvalue())} see {program} --help.") from None


def _in_one_line(box: str) -> str:
    """Returns the first paragraph of a box of tyro's, and the flags that it suggests."""
    _, _, suggested = box.partition("Perhaps you meant:")
    meant = " or ".join(re.findall(r"^[^\w\n-]{6}(--\w[\w-]*)", suggested, re.MULTILINE))
    return f"{_first_paragraph(box)};{meant and f' did you mean {meant}?'}"


def _first_paragraph(box: str) -> str:
    """Returns the text below the title of a box of tyro's, up to the next rule, in one line."""
    lines = [line.strip("│|─-╭╮╰╯ ") for line in box.splitlines()[1:]]
    text = itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines))
    return " ".join(text).rstrip(".") or "the flags cannot be read"


def _discard_output() -> None:
    """Redirects stdout to nowhere, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escape_unencodable() -> None:
    """Lets stdout print characters that its encoding lacks as \\xb1, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
