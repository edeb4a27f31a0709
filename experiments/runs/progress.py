"""Progress of long work: a bar on a terminal, plain lines elsewhere; always on stderr."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

#: ``advance(description)``: one unit of work is done.
Advance = Callable[[str], None]

#: ``say(line)``: prints a line above the progress bar.
Say = Callable[[str], None]

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


@contextlib.contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """Suppresses all output except warnings and errors: progress and tables."""
    if not quiet:
        yield
        return
    before = _QUIET.set(True)
    try:
        # It accepts any character, even if the locale has no ±.
        with (
            open(os.devnull, "w", encoding="utf-8", errors="ignore") as nowhere,
            contextlib.redirect_stdout(nowhere),
        ):
            yield
    finally:
        _QUIET.reset(before)


def is_quiet() -> bool:
    """Returns True if only warnings and errors are printed."""
    return _QUIET.get()


def tell(line: str) -> None:
    """Prints a line on stderr, at once; nothing inside `quietly`."""
    if not is_quiet():
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(total: int, shown: bool = True) -> Iterator[tuple[Advance, Say]]:
    """Shows ``total`` units of work; yields functions to advance and to print a line.

    Nothing is shown if ``shown`` is False (another process shows the progress) or inside `quietly`.
    """
    if not shown or _QUIET.get():
        yield (lambda what: None), (lambda line: None)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield (lambda what: None), tell
        return
    what = TextColumn("{task.description}")
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        yield (
            lambda what: bar.update(task, advance=1, description=what),
            lambda line: bar.console.print(line, highlight=False, markup=False),
        )
