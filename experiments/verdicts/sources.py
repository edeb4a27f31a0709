"""Where the figures come from: a folder of results, and what its report says of the runs."""

import re
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
    lines = ["| runs | what was trained, with which command, on what, when |", "|---|---|"]
    for each in results:
        report, base = report_of(each, folder), Path(each).parent.as_posix()
        links = [f"[report]({base}/{report.name})", f"[csv]({each})"]
        links += [
            f"[{path.stem}]({base}/{path.name})" for path in sorted(report.parent.glob("*.png"))
        ]
        where = f'<a id="{anchor(each)}"></a>{base}'
        lines.append(f"| {where}: {', '.join(links)} | {escaped(said_of(report))} |")
    return "\n".join(lines)


def anchor(results: str) -> str:
    """The name of a file's row among the sources."""
    return Path(results).parent.as_posix().replace("/", "-")


def escaped(text: str) -> str:
    """As a cell of a Markdown table."""
    return text.replace("|", "\\|")
