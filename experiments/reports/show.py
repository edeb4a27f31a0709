"""Tables on the screen."""

import sys

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from experiments.reports.table import Table, markdown


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
