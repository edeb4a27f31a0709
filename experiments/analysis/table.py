"""Tables on the screen and in Markdown, and the provenance of their numbers."""

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from experiments import listed

#: A header and rows of text.
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def markdown(table: Table) -> str:
    """Formats the table in Markdown, with aligned columns to be read as plain text too.

    Bars within cells are escaped, because they would end the cells.
    """
    header, *rows = ([cell.replace("|", "\\|") for cell in row] for row in (table[0], *table[1]))
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])


def show_table(table: Table) -> None:
    """Draws a table on a terminal; prints aligned Markdown into a pipe or a file.

    A terminal that is narrower than the longest words also gets Markdown, because figures would be
    cut.
    """
    console, drawn = Console(), _drawn(table)
    unbounded = console.options.update(width=sys.maxsize)
    if console.is_terminal and Measurement.get(console, unbounded, drawn).minimum <= console.width:
        console.print(drawn)
    else:
        print(markdown(table))


def _drawn(table: Table) -> RichTable:
    (first, *others), rows = table
    # Text objects, because rich reads square brackets in strings as markup.
    drawn = RichTable()
    drawn.add_column(Text(first), overflow="fold")
    for name in others:
        drawn.add_column(Text(name), justify="right", overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def provenance(command: str) -> str:
    """Returns command, versions, JAX's options, commit, hardware and date, as a Markdown list."""
    import jax

    from experiments.runs.spec import options, package_versions

    versions = {"jaxnorm": listed.version(), **package_versions()}
    software = {"Python": platform.python_version(), **versions}
    device = jax.devices()[0]
    hardware = f"{device.device_kind} ({device.platform}), {os.cpu_count()} CPU cores"
    lines = {
        "command": f"`{command}`",
        "versions": ", ".join(f"{name} {version}" for name, version in software.items()),
        "options of JAX": options(),
        "commit": _commit() or "not a checkout, or no git",
        "hardware": f"{hardware}, {platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    return "".join(f"- {name}: {line}\n" for name, line in lines.items() if line)


def _commit() -> str:
    """Returns git's description of the sources; empty without git."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # Git is not installed.
        return ""
