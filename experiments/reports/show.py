"""A table on the screen."""

from rich.console import Console
from rich.table import Table as RichTable

from experiments.reports.table import Table, markdown


def show_table(table: Table) -> None:
    """Drawn on a terminal; as aligned Markdown lines, never folded, into a pipe or a file."""
    console = Console()
    if not console.is_terminal:
        print(markdown(table))
        return
    header, rows = table
    drawn = RichTable(*header)
    for column in drawn.columns[1:]:
        column.justify = "right"
    for row in rows:
        drawn.add_row(*row)
    console.print(drawn)
