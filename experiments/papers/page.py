"""The page of all items: state, findings, picture and command of each, from committed reports."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.analysis.table import markdown
from experiments.data.reading import reading
from experiments.papers.collected import is_gathered, no_report
from experiments.papers.data import STANDING_IN
from experiments.papers.item import Item
from experiments.runs.files import prepare_folder, write_whole

#: The page, in the folder of results.
PAGE = "items/README.md"

#: The states of an item, and their meaning.
STATES = {
    "as the paper": "the paper's sizes on the paper's data",
    "reduced": "smaller networks, fewer rows, epochs or seeds, on the paper's data or simulated",
    "stand-in": "reduced, and on other data than the paper's, which the report names",
    "open": "no report",
}

#: The findings that the page shows of each item.
SHOWN = 6

INTRODUCTION = """# The papers' tables and figures, run

{count} of {items} items have a report: {counts}. This page is written by \
`python -m experiments report --items --folder experiments/results` from the reports in that \
folder, and no figure on it by hand.

{states}

A comparison counts as the report judges it: an ordering holds only if the whole 95% interval over \
paired seeds is on the paper's side. A reduced run speaks of its own networks, data and epochs: it \
shows that the item runs to its report, and which comparisons are decided at that size. It neither \
confirms nor refutes what the paper reports at full size. What several seeds decide is on \
[the page of claims](../README.md), and which folders stood in \
[there](../../papers/README.md). "±" is the spread over seeds or draws."""


class Written(NamedTuple):
    """The parts of a report.

    Attributes:
        path: the file.
        preset: the name of the preset.
        size: its differences from the paper's protocol.
        findings: statement, ours, the reference, and if it holds.
        data: the data, if the report names them.
        command: the user's command.
        machine: the hardware.
        date: the date.
    """

    path: Path
    preset: str
    size: str
    findings: Sequence[Sequence[str]]
    data: str
    command: str
    machine: str
    date: str


def read_report(path: Path) -> tuple[str, Written]:
    """Returns the name of a report's item, and the parts of the report."""
    with reading(path, "wanted a report as paper writes it: remove it, and run its item again"):
        text = path.read_text(encoding="utf-8")
        heading, preset = (
            re.search(r"^# (\S+): ", text),
            re.search(r"(?m)^Preset (\w+): (.*)\.$", text),
        )
        if not heading or not preset:
            raise ValueError("it names no item or no preset")
    table = [_cells(line) for line in text.split("\n") if line.startswith("| ")]
    data = re.search(r"(?m)^Trained and tested on: (.*)\.$", text)
    command, machine, date = (
        found[1] if (found := re.search(rf"(?m)^- {name}: `?(.*?)`?$", text)) else "not said"
        for name in ("command", "hardware", "date")
    )
    name, size = preset.groups()
    findings = [cells for cells in table if len(cells) == 4 and cells[0]]
    return heading[1], Written(
        path, name, size, findings, data[1] if data else "", command, machine, date
    )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def reports_in(folder: Path) -> dict[str, list[Written]]:
    """Returns the reports below a folder by item, the newest first; a gathered page is none."""
    reports: dict[str, list[Written]] = {}
    for path in sorted(folder.rglob("report.md")):
        if is_gathered(path):
            continue
        name, report = read_report(path)
        reports.setdefault(name, []).append(report)
    return {
        name: sorted(each, key=lambda report: report.date, reverse=True)
        for name, each in reports.items()
    }


def state_of(item: Item, report: Written | None) -> str:
    """Returns the state of an item: a name of `STATES`."""
    if report is None:
        return "open"
    used, _, replaced = report.data.partition(STANDING_IN)
    papers = {cell.dataset for cell in item.grid.cells} if item.grid else {"cifar10"}
    if replaced or (used and not set(used.split(", ")) <= papers):
        return "stand-in"
    return "as the paper" if report.preset == "full" else "reduced"


def judged(findings: Iterable[Sequence[str]]) -> str:
    """Counts the comparisons by outcome, in words."""
    counts = Counter(cells[3] for cells in findings if cells[3])
    names = {"yes": "hold", "no": "do not hold"}
    return ", ".join(f"{n} {names.get(word, word)}" for word, n in counts.items()) or "none judged"


def page_of(items: Sequence[Item], reports: Mapping[str, Sequence[Written]], base: Path) -> str:
    """Returns the page of some items.

    Args:
        items: all items, in the order of the page.
        reports: the reports by item, the newest first.
        base: the folder of the page, which links are relative to.
    """
    newest = {item.name: next(iter(reports.get(item.name, ())), None) for item in items}
    states = {item.name: state_of(item, newest[item.name]) for item in items}
    counts = Counter(states.values())
    introduction = INTRODUCTION.format(
        count=len(items) - counts["open"],
        items=len(items),
        counts=", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]),
        states="\n".join(f"- **{state}**: {meaning};" for state, meaning in STATES.items())[:-1]
        + ".",
    )
    rows = [
        (
            f"[{name}](#{anchor(name)})",
            states[name],
            judged(report.findings) if report else "",
            report.date if report else "",
        )
        for name, report in newest.items()
    ]
    table = markdown((("item", "state", "comparisons", "date"), rows))
    sections = [
        _section(item, states[item.name], reports.get(item.name, ()), base) for item in items
    ]
    return "\n\n".join([introduction, table, *sections]) + "\n"


def anchor(name: str) -> str:
    """Returns the name of an item's section in links."""
    return name.replace("/", "-")


def _section(item: Item, state: str, reports: Sequence[Written], base: Path) -> str:
    """Returns the part of the page on one item."""
    heading = f'## <a id="{anchor(item.name)}"></a>{item.name}: {item.title}'
    parts = [heading, f"The paper: {item.reported}."]
    if not reports:
        return "\n\n".join([*parts, f"Open: `python -m experiments paper {item.name}`"])
    report = reports[0]
    links = ", ".join(f"[report]({_link(each.path, base)})" for each in reports)
    csv = _link(report.path.with_name("results.csv"), base)
    data = f" Data: {report.data}." if report.data else ""
    parts += [
        f"**{state}**: {report.size}.{data} Comparisons: {judged(report.findings)}.",
        markdown((("", "ours", "reference", "holds"), _unescaped(report.findings[:SHOWN]))),
        f"{links}, [csv]({csv}); `{report.command}`; {report.machine}; {report.date}",
    ]
    pictures = sorted(report.path.parent.glob("*.png"))
    parts += [f"![{item.name}]({_link(picture, base)})" for picture in pictures[:1]]
    return "\n\n".join(parts)


def _unescaped(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    return [[cell.replace("\\|", "|") for cell in row] for row in rows]


def _link(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path, base)).as_posix()


def write_items(items: Sequence[Item], folder: Path) -> int:
    """Writes the page of a folder of results, and returns the number of items with a report.

    Raises:
        UserError: for a folder without a report of any item.
    """
    reports, out = reports_in(folder), folder / PAGE
    if not any(item.name in reports for item in items):
        raise no_report(folder)
    prepare_folder(out.parent, "--folder")
    write_whole(out, page_of(items, reports, out.parent), flag="--folder")
    return sum(item.name in reports for item in items)
