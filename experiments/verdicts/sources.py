"""Where the figures come from: a folder of results, and what its report says of the runs."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.errors import UserError

#: What compare and paper write beside the csv files.
REPORTS = ("report.md", "table.md")


def report_of(results: str, folder: Path) -> Path:
    """The report beside a csv file of results."""
    for name in REPORTS:
        if (path := (folder / results).with_name(name)).is_file():
            return path
    raise UserError(
        f"{(folder / results).parent} has neither {' nor '.join(REPORTS)}; wanted what compare or "
        "paper wrote beside results.csv: keep it with the figures."
    )


def said_of(report: Path) -> str:
    """What a report says of its runs: preset, command, versions, hardware, date."""
    text = report.read_text(encoding="utf-8")
    preset = re.findall(r"^Preset (.*)$", text, re.MULTILINE)
    listed = re.findall(r"^- (command|versions|hardware|date): (.*)$", text, re.MULTILINE)
    named = dict(listed)
    said = [f"preset {each}" for each in preset]
    said += [named[name] for name in ("command", "hardware", "date") if name in named]
    return "; ".join(each.rstrip(".") for each in said)


def sources_table(results: list[str], folder: Path) -> str:
    """A row for each csv file: its links, and what the report says."""
    rows = []
    for each in results:
        report, base = report_of(each, folder), Path(each).parent.as_posix()
        links = [f"[report]({base}/{report.name})", f"[csv]({each})"]
        links += [
            f"[{path.stem}]({base}/{path.name})" for path in sorted(report.parent.glob("*.png"))
        ]
        where = f'<a id="{anchor(each)}"></a>{base}'
        rows.append((f"{where}: {', '.join(links)}", said_of(report)))
    return table_of(("runs", "what was trained, with which command, on what, when"), rows)


def anchor(results: str) -> str:
    """The name of a file's row among the sources."""
    return Path(results).parent.as_posix().replace("/", "-")


def table_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, each row a line as it is."""
    cells = ((cell.replace("|", "\\|") for cell in row) for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in (header, *cells)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])
