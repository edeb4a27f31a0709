"""One page of verdicts, from committed csv files alone."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.bench.papers import SPEED, STEPS
from experiments.reading import reading
from experiments.reports.files import write_whole
from experiments.runs.analyse import CONFIDENCE
from experiments.verdicts.beside import level_of, tables
from experiments.verdicts.claim import Claim, Side, papers, read, side_of
from experiments.verdicts.costs import COSTS, decided_by
from experiments.verdicts.judge import (
    EXCESS,
    FITTED,
    NOT_DECIDABLE,
    NOT_REPRODUCED,
    REPRODUCED,
    SEEDS,
    Verdict,
    judge,
)
from experiments.verdicts.seen import WANTED, rows_like, seen
from experiments.verdicts.sources import anchor, report_of, sources_table, table_of

COMMAND = "python -m experiments report --verdicts --folder experiments/results"

RULES = f"""\
A difference is that of two methods under the same seed (same rows, split and batches), for wins
that on the same data set; its figure is the mean with the {100 * CONFIDENCE:.0f}% interval of
Student's t, positive where the paper's order holds. By rules that are the same for every claim:

- **{REPRODUCED}**: the whole interval is on the paper's side;
- **{NOT_REPRODUCED}**: the whole interval is on the other side;
- **{NOT_DECIDABLE}**: the interval leaves it open; or a side diverged or stayed at chance,
  unless that is the claim; or the claim is about what trained networks reach, and neither side
  came to a training accuracy of {100 * FITTED:.0f}% on its own rows, or on the UCI sets to within
  {EXCESS:g} points of the paper's errors; or the runs cannot speak of it, for the reason that is
  given. Then an order that holds here is no confirmation, and one that does not is no refutation.

None is judged from fewer than {SEEDS} seeds, and of so many intervals some miss by chance.
"Reproduced" is said of our networks and data, which are smaller than the papers' (each row links
to what was trained), not of the papers' own.
Photographs are those of CIFAR-10, re-encoded as JPEG of quality 75. What would decide a claim is
the paper's own protocol; its hours are those of one GPU at {SPEED:.3g} operations and at most
{STEPS:g} small steps a second, operations being counted from shapes ([{COSTS}]({COSTS}),
`python -m experiments bench papers`)."""


def verdicts_in(folder: Path) -> dict[str, tuple[Claim, Verdict]]:
    """Every claim, judged, by name."""
    return {claim.name: (claim, verdict_on(claim, folder)) for claim in all_claims()}


def all_claims() -> list[Claim]:
    """The claims of all papers, in their order."""
    return [claim for paper in papers() for claim in paper.claims]


def verdict_on(claim: Claim, folder: Path) -> Verdict:
    """The verdict on a claim by its file in the folder of results."""
    worse = None if claim.worse is None else seen(claim, claim.worse, folder)
    return judge(claim, seen(claim, claim.better, folder), worse)


def write_page(folder: Path) -> int:
    """Writes FOLDER/README.md; returns the number of claims on it."""
    page = page_of(folder)
    write_whole(folder / "README.md", page, flag="--folder")
    return len(all_claims())


def page_of(folder: Path) -> str:
    """The page in Markdown."""
    judged = verdicts_in(folder)
    counts = Counter(verdict.word for _, verdict in judged.values())
    said = ", ".join(f"{counts[w]} {w}" for w in (REPRODUCED, NOT_REPRODUCED, NOT_DECIDABLE))
    files = [each for claim, _ in judged.values() for each in claim.files]
    files += [side.results for each in advice() for side in each.runs]
    files += [column.results for beside in tables() for column in beside.columns]
    parts = [
        "# The papers' claims, measured",
        f"{len(judged)} claims: {said}. This page is written by `{COMMAND}` from the csv files "
        "beside it, and no figure on it by hand.",
        RULES,
    ]
    for paper in papers():
        parts += [f"## {paper.title}", *([paper.note] if paper.note else [])]
        parts.append(_table((judged[claim.name] for claim in paper.claims), folder))
        parts.append(f"![{Path(paper.picture).parent.as_posix()}]({paper.picture})")
    parts += [
        "## Which normalizer when",
        "Test accuracies in percent; each claim with its verdict, for or against.",
        _advice(judged, folder),
        *(part for beside in tables() for part in beside.parts(folder)),
        "## The runs",
        sources_table(list(dict.fromkeys(files)), folder),
    ]
    return "\n\n".join(parts) + "\n"


def _table(judged: Iterable[tuple[Claim, Verdict]], folder: Path) -> str:
    header = ("claim", "the paper", "measured", "verdict", "why", "what would decide it", "runs")
    rows = []
    for claim, verdict in judged:
        row = (
            f'<a id="{claim.name}"></a>{claim.name}',
            f"{claim.says} ({claim.place})",
            f"{claim.data}, {_measure(claim)}, {_seeds(claim, folder)} seeds: {verdict.found}",
            f"**{verdict.word}**",
            verdict.reason,
            decided_by(claim, folder) if verdict.word == NOT_DECIDABLE else "",
            "; ".join(_links(each, folder) for each in claim.files),
        )
        rows.append(row)
    return table_of(header, rows)


def _measure(claim: Claim) -> str:
    percent = claim.measure.endswith(("accuracy", "error"))
    name = claim.measure.replace("_", " ").replace("train ", "training ")
    return f"{name}, %" if percent else name


def _seeds(claim: Claim, folder: Path) -> int:
    return len(seen(claim, claim.better, folder).seeds)


def _links(results: str, folder: Path) -> str:
    report = report_of(results, folder)
    base = Path(results).parent.as_posix()
    return f"[report]({base}/{report.name}), [csv]({results}), [command](#{anchor(results)})"


class Advice(NamedTuple):
    """Which normalizer when: a line of advice.

    Attributes:
        network: what one has.
        take: what to take.
        claims: the names of claims that speak of it, for or against.
        runs: further figures.
        data: what these were trained on.
    """

    network: str
    take: str
    claims: Sequence[str] = ()
    runs: Sequence[Side] = ()
    data: str = "photographs"


@cache
def advice() -> tuple[Advice, ...]:
    """All lines, in the order of the page."""
    return tuple(
        Advice(**{**each, "runs": tuple(map(side_of, each.get("runs", ())))})
        for each in read("tables.toml")["advice"]
    )


def _advice(judged: dict[str, tuple[Claim, Verdict]], folder: Path) -> str:
    rows = [(each.network, each.take, _evidence(each, judged, folder)) for each in advice()]
    return table_of(("your network", "take", "evidence"), rows)


def _evidence(advised: Advice, judged: dict[str, tuple[Claim, Verdict]], folder: Path) -> str:
    said = [
        f"[{name}](#{name}): {judged[name][1].found}, {judged[name][1].word}"
        for name in advised.claims
    ]
    said += [f"{_figure(side, folder)} ({advised.data})" for side in advised.runs]
    return "; ".join(said)


def _figure(side: Side, folder: Path) -> str:
    """The test accuracy of some runs, over their seeds."""
    path = folder / side.results
    with reading(path, WANTED):
        return f"[{side.name}]({side.results}) {level_of(rows_like(path, side))}"
