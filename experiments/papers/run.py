"""The run of an item, and its report as Markdown, csv and pictures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.analysis.csv import write_csv
from experiments.analysis.picture import picture
from experiments.analysis.table import Table, markdown, provenance, show_table
from experiments.config import HERE, Workers
from experiments.errors import UserError
from experiments.papers.collected import is_gathered
from experiments.papers.item import Context, Finding, Item, Preset, PresetName, Report
from experiments.papers.page import read_report
from experiments.papers.settings import CHANGED, named, with_settings
from experiments.runs.files import prepare_folder, text_in, write_whole
from experiments.runs.lock import alone_in
from experiments.runs.progress import Advance, progress
from experiments.runs.store import FILE

#: The columns of curves.csv if it has the lines of the pictures.
LINES = ("picture", "panel", "quantity", "line", "x", "y")

#: The words of a report from the time that its command begins until all files are written.
UNFINISHED = (
    "**Of an earlier run**, as may be some of the files beside it: the command has begun again "
    "since then, and has not ended. Runs that are finished are kept, and it writes all files anew."
)

#: The words of a report whose folder had runs before its call.
KEPT = (
    "Runs that earlier calls finished are kept, perhaps of other versions and on other hardware: "
    "the report names those of the last call."
)

#: The ticks of the progress bar.
TICKS = 100


def run_item(
    item: Item,
    preset: PresetName,
    data_dir: Path | None,
    out: Path,
    command: str,
    workers: Workers = HERE,
    pairs: Sequence[str] = (),
) -> Report:
    """Runs one preset of an item, writes its report, csv file and pictures, prints the findings.

    Args:
        item: the table or figure.
        preset: the name of the preset.
        data_dir: the folder of the paper's data, for items that need one.
        out: the folder of report.md, results.csv and the pictures.
        command: the user's command, for the report.
        workers: the processes, or the cluster, of a table's trainings.
        pairs: settings of the user's, NAME=VALUE each, in the place of the preset's.
    """
    chosen = item.presets[preset]
    if pairs:
        chosen = with_settings(item, chosen, pairs)
    check_replaceable(out, item, preset, pairs)
    if data_dir is not None and not data_dir.is_dir():
        raise UserError(f"--data-dir {data_dir} is not a folder; give the folder of the data.")
    with alone_in(prepare_folder(out)):  # Other commands wait to write there, or give up.
        _mark(out / "report.md")
        kept = [KEPT] * (out / FILE).is_file()
        with progress(TICKS) as (advance, _):
            ticker = _ticker(advance)
            report = item.run(chosen.settings, Context(data_dir, out, ticker, workers))
            ticker(1.0, "done")
        report = report._replace(notes=(*item.notes, *report.notes, *kept))
        files = _write(item, preset, chosen, report, command, out)
    show_table(findings_table(report.findings))
    print(*("", *report.notes), sep="\n")
    print(f"\n{preset}: {chosen.label}.")
    print(f"Written to {out}: {', '.join(files)}.")
    return report


def _mark(path: Path) -> None:
    """Says in a report that is there that its command has begun again."""
    text = text_in(path)
    if text and UNFINISHED not in text and not is_gathered(path):
        write_whole(path, _marked(text))


def _marked(text: str) -> str:
    """Returns a report's text with the words on its command below the heading."""
    heading, rest = text.split("\n", 1)
    return f"{heading}\n\n{UNFINISHED}\n{rest}"


def _write(
    item: Item, name: PresetName, preset: Preset, report: Report, command: str, out: Path
) -> list[str]:
    """Writes the report, its tables and pictures; returns the names of the files."""
    tables = {"results.csv": (report.columns, report.rows)}
    if curves := report.curves[1] or _lines(report.figures):
        tables["curves.csv"] = (report.curves[0] or LINES, curves)
    # First the report, by which `check_replaceable` knows whose the other files are.
    text = written(item, name, preset, report, command)
    write_whole(out / "report.md", _marked(text))
    for table, (columns, rows) in tables.items():
        write_csv(out / table, columns, rows)
    for each, figure in report.figures.items():
        write_whole(out / f"{each}.png", picture(figure))
    write_whole(out / "report.md", text)
    return ["report.md", *tables, *(f"{each}.png" for each in report.figures)]


def check_replaceable(out: Path, item: Item, preset: PresetName, pairs: Sequence[str] = ()) -> None:
    """Raises UserError if a folder has a report that another run of an item took its time for.

    Reports of the preset smoke, which takes seconds, may be replaced by any of their item; tables
    without a report by none.
    """
    path = out / "report.md"
    if not path.is_file():
        for table in (out / "results.csv", out / "curves.csv"):
            if table.is_file():
                raise UserError(
                    f"{table} is of no report, and would be replaced by that of {item.name}; "
                    "wanted another --out, or move that file."
                )
        return
    if is_gathered(path):
        return
    name, there = read_report(path)
    before, now = there.size.partition(CHANGED)[2], ", ".join(pairs)
    same = name == item.name and (there.preset, before) == (preset, now)
    if not same and (name != item.name or there.preset != "smoke" or before):
        raise UserError(
            f"{path} is the report of {_called(name, there.preset, before)}, which that of "
            f"{_called(item.name, preset, now)} would replace; wanted another --out, or a folder "
            "without that report: move it."
        )


def _called(name: str, preset: str, changed: str) -> str:
    return f"{name}, preset {preset}{f' with {changed}' * bool(changed)}"


def _lines(figures: Mapping[str, Figure]) -> list[tuple[object, ...]]:
    """Returns a row per point of each line that has a name in the pictures' legends."""
    return [
        (name, number, axes.get_ylabel(), line.get_label(), x, y)
        for name, figure in figures.items()
        for number, axes in enumerate(figure.axes, 1)
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
        for x, y in np.asarray(line.get_xydata()).tolist()
    ]


def written(item: Item, name: PresetName, preset: Preset, report: Report, command: str) -> str:
    """Formats the report in Markdown."""
    settings = [f"- {field}: {value}" for field, value in named(preset.settings).items()]
    parts = [
        f"# {item.name}: {item.title}",
        f"The paper: {item.reported}",
        f"Preset {name}: {preset.label}.",
        markdown(findings_table(report.findings)),
        *report.notes,
        *(f"![{each}]({each}.png)" for each in report.figures),
        "\n".join(["Settings:", "", *settings]),
        provenance(command),
    ]
    return "\n\n".join(parts)


def findings_table(findings: Sequence[Finding]) -> Table:
    """Makes a table of findings: statement, ours, reference, and if it holds."""
    words = {True: "yes", False: "no", None: ""}
    rows = [(c.statement, c.ours, c.reference, words[c.holds] or c.reason) for c in findings]
    return ("", "ours", "reference", "holds"), rows


def items_table(items: Iterable[Item]) -> Table:
    """Lists the items with the paper's report and the cost of each preset."""
    rows = [(i.name, i.title, i.reported, i.smoke.cost, i.cpu.cost, i.full.cost) for i in items]
    return ("item", "shows", "the paper reports", "smoke", "cpu", "full"), rows


def _ticker(advance: Advance) -> Callable[[float, str], None]:
    """Converts fractions of the work to whole ticks of the bar."""
    done = 0

    def at(fraction: float, what: str) -> None:
        nonlocal done
        while done < min(int(fraction * TICKS), TICKS):
            advance(what)
            done += 1

    return at
