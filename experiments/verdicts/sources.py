"""Sources of the figures: folders of results, and the provenance in their reports."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.errors import UserError

#: The reports that compare and paper write beside the csv files.
REPORTS = ("report.md", "table.md")


def report_of(results: str, folder: Path) -> Path:
    """Returns the report beside a csv file of results."""
    for name in REPORTS:
        if (path := (folder / results).with_name(name)).is_file():
            return path
    raise UserError(
        f"{(folder / results).parent} has neither {' nor '.join(REPORTS)}; wanted what compare or "
        "paper wrote beside results.csv: keep it with the figures."
    )


def provenance_of(report: Path) -> str:
    """Returns the preset, command, hardware and date in a report."""
    text = report.read_text(encoding="utf-8")
    preset = re.findall(r"^Preset (.*)$", text, re.MULTILINE)
    named = dict(re.findall(r"^- (command|hardware|date): (.*)$", text, re.MULTILINE))
    parts = [f"preset {each}" for each in preset]
    parts += [named[name] for name in ("command", "hardware", "date") if name in named]
    return "; ".join(each.rstrip(".") for each in parts)


def sources_table(results: list[str], folder: Path) -> str:
    """Makes a row per csv file: its links, and the provenance in its report."""
    rows = []
    for each in results:
        report, base = report_of(each, folder), Path(each).parent.as_posix()
        links = [f"[report]({base}/{report.name})", f"[csv]({each})"]
        links += [
            f"[{path.stem}]({base}/{path.name})" for path in sorted(report.parent.glob("*.png"))
        ]
        where = f'<a id="{anchor(each)}"></a>{base}'
        rows.append((f"{where}: {', '.join(links)}", provenance_of(report)))
    return table_of(("runs", "what was trained, with which command, on what, when"), rows)


def anchor(results: str) -> str:
    """Returns the anchor of a file's row among the sources."""
    return Path(results).parent.as_posix().replace("/", "-")


def table_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Makes a Markdown table with one line per row."""
    cells = ((cell.replace("|", "\\|") for cell in row) for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in (header, *cells)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])
