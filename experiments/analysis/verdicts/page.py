"""The page of verdicts: page.md, filled in from committed csv files alone."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from experiments.analysis.measures import GPU_SPEED, GPU_STEPS, factor, heading, is_fraction
from experiments.analysis.statistics import LOOK_CONFIDENCE, LOOKS, mean_and_deviation
from experiments.analysis.verdicts.claim import Claim, Paper, Source, side
from experiments.analysis.verdicts.claims import PAPERS
from experiments.analysis.verdicts.judge import (
    EXCESS,
    FITTED,
    NOT_REPRODUCED,
    OPEN,
    REPRODUCED,
    SEEDS,
    Verdict,
    judge,
)
from experiments.analysis.verdicts.picture import picture_of
from experiments.analysis.verdicts.results import (
    WANTED,
    Row,
    outcome_of,
    rows_like,
    rows_of,
    side_results,
)
from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.runs.files import write_whole
from experiments.training.run import DIVERGED

#: The share of claims without a real difference that three looks decide wrongly.
MISSES = 0.05
#: The file that ``bench papers`` writes, in the folder of results.
COSTS = "bench/papers.csv"
#: The reports that compare and paper write beside the csv files.
REPORTS = ("report.md", "table.md")

#: Tables of methods on questions that no paper claims: folder and measure by title of the column.
TABLES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "rivals": {
        "test accuracy": ("rivals", "test_accuracy"),
        "training accuracy": ("rivals", "train_accuracy"),
    },
    "depth": {f"{n} layers": (f"depth/{n}", "test_accuracy") for n in (3, 10, 30)},
    "strength": {f"times {n}": (f"luo/strength/{n}", "test_loss") for n in (0, 0.3, 1, 3, 10)},
}

#: Every claim with its verdict, by name.
Judged = Mapping[str, tuple[Claim, Verdict]]


class Lookup:
    """Calls a function with the key of ``{name[key]}`` in a template, and keeps the keys."""

    def __init__(self, function: Callable[[str], str]):
        self._function = function
        self.keys: list[str] = []

    def __getitem__(self, key: str) -> str:
        self.keys.append(key)
        return self._function(key)


def verdicts_in(folder: Path) -> dict[str, tuple[Claim, Verdict]]:
    """Judges every claim by its files in the folder of results; by name."""
    claims = (claim for paper in PAPERS for claim in paper.claims)
    return {claim.name: (claim, verdict_on(claim, folder)) for claim in claims}


def verdict_on(claim: Claim, folder: Path) -> Verdict:
    """Judges a claim by its files in the folder of results."""
    return judge(claim, *(side_results(each, claim.measure, folder) for each in claim.sides))


def write_page(folder: Path) -> int:
    """Writes FOLDER/README.md and its picture; returns the number of claims on it."""
    judged = verdicts_in(folder)
    write_whole(folder / "README.md", page_of(folder, judged), flag="--folder")
    write_whole(folder / "verdicts.png", picture_of(judged), flag="--folder")
    return len(judged)


def page_of(folder: Path, judged: Judged) -> str:
    """Returns the page in Markdown.

    Raises:
        UserError: for a sentence that names a claim with another verdict, or advice that rests on
            an open claim.
    """
    counts = Counter(verdict.word for _, verdict in judged.values())
    decided = len(judged) - counts[OPEN]
    accuracy = Lookup(partial(_accuracy, folder))
    page = (
        Path(__file__)
        .with_name("page.md")
        .read_text(encoding="utf-8")
        .format(
            claims=len(judged),
            counts=", ".join(f"{counts[w]} {w}" for w in (REPRODUCED, NOT_REPRODUCED, OPEN)),
            decided=decided,
            missed=MISSES * decided,
            reproduced=Lookup(partial(_checked, judged, REPRODUCED)),
            not_reproduced=Lookup(partial(_checked, judged, NOT_REPRODUCED)),
            looks=LOOKS,
            confidence=100 * LOOK_CONFIDENCE,
            fitted=100 * FITTED,
            excess=EXCESS,
            seeds=SEEDS,
            speed=GPU_SPEED,
            steps=GPU_STEPS,
            papers="\n\n".join(_section(paper, judged, folder) for paper in PAPERS),
            evidence=Lookup(partial(_evidence, judged)),
            accuracy=accuracy,
            tables={name: _methods_table(columns, folder) for name, columns in TABLES.items()},
        )
    )
    files = [file for claim, _ in judged.values() for file in claim.files]
    files += [side(key.split()[1]).file for key in accuracy.keys]
    files += [side(each).file for columns in TABLES.values() for each, _ in columns.values()]
    return f"{page}\n{_sources(dict.fromkeys(files), folder)}\n"


def _checked(judged: Judged, word: str, name: str) -> str:
    """Returns the link to a claim that a sentence rests on, which must have that verdict."""
    if judged[name][1].word != word:
        raise UserError(
            f"a sentence of page.md rests on {name} being {word}, and it is "
            f"{judged[name][1].word}; rewrite the sentence."
        )
    return f"[{name}](#{name})"


def _evidence(judged: Judged, name: str) -> str:
    """Returns the figures of a claim behind some advice, which must not be open."""
    verdict = judged[name][1]
    if verdict.word == OPEN:
        raise UserError(f"advice of page.md rests on {name}, which is open; take the claim out.")
    return f"[{name}](#{name}): {verdict.figures}, {verdict.word}"


def _accuracy(folder: Path, key: str) -> str:
    """Returns the test accuracy of a method in a folder, ``METHOD FOLDER``."""
    method, where = key.split()
    runs = side(where, method)
    with reading(folder / runs.file, WANTED):
        return f"[{method}]({runs.file}) {level_of(rows_like(runs, folder))}"


def level_of(rows: Sequence[Row], measure: str = "test_accuracy") -> str:
    """Returns a measure of the runs that did not diverge, and the number of lost runs.

    The accuracy of a diverged run is that of its first class, and says nothing.
    """
    digits = ".2f" if is_fraction(measure) else ".4f"
    values = [factor(measure) * float(row[measure]) for row in rows if outcome_of(row) != DIVERGED]
    level = mean_and_deviation(values, digits) if values else ""
    outcomes = Counter(outcome for row in rows if (outcome := outcome_of(row)))
    lost = [f"{outcome} {count} of {len(rows)}" for outcome, count in outcomes.items()]
    return ", ".join(filter(None, [level, *lost]))


def _section(paper: Paper, judged: Judged, folder: Path) -> str:
    """Returns the section of a paper: a row per claim, and a picture."""
    header = ("claim", "the paper", "measured", "verdict", "why", "what would decide it", "runs")
    table = _table(header, (_row(*judged[claim.name], folder) for claim in paper.claims))
    picture = f"![{Path(paper.picture).parent.as_posix()}]({paper.picture})"
    return "\n\n".join(filter(None, (f"## {paper.title}", paper.note, table, picture)))


def _row(claim: Claim, verdict: Verdict, folder: Path) -> tuple[str, ...]:
    unlike = f"; unlike the paper: {claim.unlike}" if claim.unlike else ""
    seeds = f"{verdict.seeds} seeds"
    return (
        f'<a id="{claim.name}"></a>{claim.name}',
        f"{claim.says} ({claim.source.place}{unlike})",
        f"{claim.data}, {heading(claim.measure)}, {seeds}: {verdict.figures}",
        f"**{verdict.word}**",
        verdict.reason,
        _decided_by(claim.source, folder) if verdict.word == OPEN else "",
        "; ".join(f"{_links(file, folder)}, [command](#{_anchor(file)})" for file in claim.files),
    )


def _decided_by(source: Source, folder: Path) -> str:
    """Returns the command at the paper's size with its hours, in words."""
    if not source.item:
        return source.otherwise
    command = f"`python -m experiments paper {source.item} --preset full --data-dir DIR`"
    if not source.cells:
        return f"{command}: {source.otherwise}"
    table = [row for row in rows_of(folder / COSTS) if row["item"] == source.item]
    rows = [row for row in table if (row["row"], row["column"]) in source.cells]
    if len(rows) != len(source.cells):
        raise UserError(
            f"{folder / COSTS} does not have the cells {sorted(source.cells)} of {source.item}, "
            "which a claim names; run python -m experiments bench papers, or correct them."
        )
    return f"{command}: {_hours(rows)} GPU hours for these rows, {_hours(table)} for the table"


def _hours(rows: Sequence[Row]) -> str:
    """Returns the hours of all seeds, in two digits."""
    hours = sum(float(row["hours"]) * int(row["seeds"]) for row in rows)
    return f"{float(f'{hours:.2g}'):,g}"


def _methods_table(columns: Mapping[str, tuple[str, str]], folder: Path) -> str:
    """Returns a table with a row per method, over the seeds, with the rates that were chosen."""
    cells: dict[str, dict[str, str]] = {}
    for title, (where, measure) in columns.items():
        file = folder / side(where).file
        with reading(file, WANTED):
            for method in dict.fromkeys(row["method"] for row in rows_of(file)):
                rows = [row for row in rows_of(file) if row["method"] == method]
                rates = [f"{float(r['learning_rate']):g}" for r in rows if "learning_rate" in r]
                chosen = f" ({'/'.join(dict.fromkeys(rates))})" if rates else ""
                cells.setdefault(method, {})[title] = f"{level_of(rows, measure)}{chosen}"
    lines = ((name, *(row.get(title, "") for title in columns)) for name, row in cells.items())
    return _table(("method", *columns), lines)


def _sources(files: Iterable[str], folder: Path) -> str:
    """Makes a row per csv file: its links, and the provenance in its report."""
    rows = []
    for file in files:
        base = Path(file).parent.as_posix()
        pictures = sorted((folder / base).glob("*.png"))
        links = [_links(file, folder), *(f"[{p.stem}]({base}/{p.name})" for p in pictures)]
        place = f'<a id="{_anchor(file)}"></a>{base}'
        rows.append((f"{place}: {', '.join(links)}", provenance_of(_report(file, folder))))
    return _table(("runs", "what was trained, with which command, on what, when"), rows)


def _links(file: str, folder: Path) -> str:
    return f"[report]({Path(file).parent.as_posix()}/{_report(file, folder).name}), [csv]({file})"


def _anchor(file: str) -> str:
    """Returns the anchor of a file's row among the sources."""
    return Path(file).parent.as_posix().replace("/", "-")


def _report(file: str, folder: Path) -> Path:
    """Returns the report beside a csv file."""
    for name in REPORTS:
        if (path := (folder / file).with_name(name)).is_file():
            return path
    raise UserError(
        f"{(folder / file).parent} has neither {' nor '.join(REPORTS)}; wanted what compare or "
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


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Makes a Markdown table with one line per row."""
    cells = ((cell.replace("|", "\\|") for cell in row) for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in (header, *cells)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])
