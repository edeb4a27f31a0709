"""The page of verdicts, from committed csv files alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.analysis.measures import heading
from experiments.analysis.statistics import LOOK_CONFIDENCE, LOOKS
from experiments.bench.papers import SPEED, STEPS
from experiments.errors import UserError
from experiments.reading import reading
from experiments.runs.files import write_whole
from experiments.verdicts.beside import level_of, tables
from experiments.verdicts.claim import HERE, Claim, Paper, Side, papers, read, side_of
from experiments.verdicts.costs import COSTS, decided_by
from experiments.verdicts.judge import (
    EXCESS,
    FITTED,
    NOT_REPRODUCED,
    OPEN,
    REPRODUCED,
    SEEDS,
    Verdict,
    judge,
)
from experiments.verdicts.picture import picture_of
from experiments.verdicts.sides import WANTED, rows_like, side_results
from experiments.verdicts.sources import anchor, report_of, sources_table, table_of

#: The verdicts by their keys in tables.toml.
WORDS = {"reproduced": REPRODUCED, "not_reproduced": NOT_REPRODUCED, "open": OPEN}
#: The picture at the top of the page.
PICTURE = "verdicts.png"
#: The share of claims without a real difference that three looks decide wrongly.
MISSES = 0.05

COMMAND = "python -m experiments report --verdicts --folder experiments/results"


def verdicts_in(folder: Path) -> dict[str, tuple[Claim, Verdict]]:
    """Judges every claim; by name."""
    claims = (claim for paper in papers() for claim in paper.claims)
    return {claim.name: (claim, verdict_on(claim, folder)) for claim in claims}


def verdict_on(claim: Claim, folder: Path) -> Verdict:
    """Judges a claim by its files in the folder of results."""
    worse = None if claim.worse is None else side_results(claim, claim.worse, folder)
    return judge(claim, side_results(claim, claim.better, folder), worse)


def write_page(folder: Path) -> int:
    """Writes FOLDER/README.md and its picture; returns the number of claims on it."""
    judged = verdicts_in(folder)
    write_whole(folder / "README.md", page_of(folder, judged), flag="--folder")
    write_whole(folder / PICTURE, picture_of(judged), flag="--folder")
    return len(judged)


def page_of(folder: Path, judged: Mapping[str, tuple[Claim, Verdict]]) -> str:
    """Returns the page in Markdown, with every judged claim."""
    counts = Counter(verdict.word for _, verdict in judged.values())
    decided = len(judged) - counts[OPEN]
    files = [each for claim, _ in judged.values() for each in claim.files]
    files += [side.results for each in advice() for side in each.runs]
    files += [column.results for beside in tables() for column in beside.columns]
    return (
        (HERE / "page.md")
        .read_text(encoding="utf-8")
        .format(
            **WORDS,
            claims=len(judged),
            counts=", ".join(f"{counts[word]} {word}" for word in WORDS.values()),
            decided=decided,
            missed=MISSES * decided,
            command=COMMAND,
            picture=PICTURE,
            headlines=headlines(judged),
            looks=LOOKS,
            confidence=100 * LOOK_CONFIDENCE,
            fitted=100 * FITTED,
            excess=EXCESS,
            seeds=SEEDS,
            speed=SPEED,
            steps=STEPS,
            costs=COSTS,
            papers="\n\n".join(_section(paper, judged, folder) for paper in papers()),
            advice=_advice(judged, folder),
            beside="\n\n".join(part for beside in tables() for part in beside.parts(folder)),
            sources=sources_table(list(dict.fromkeys(files)), folder),
        )
    )


def _section(paper: Paper, judged: Mapping[str, tuple[Claim, Verdict]], folder: Path) -> str:
    table = _table((judged[claim.name] for claim in paper.claims), folder)
    picture = f"![{Path(paper.picture).parent.as_posix()}]({paper.picture})"
    return "\n\n".join(filter(None, (f"## {paper.title}", paper.note, table, picture)))


def headlines(judged: Mapping[str, tuple[Claim, Verdict]]) -> str:
    """Returns the sentences at the top of the page, checked against the verdicts that they name.

    Raises:
        UserError: for a sentence that names a claim with another verdict.
    """
    items = []
    for each in read("tables.toml")["headline"]:
        for key, word in WORDS.items():
            for name in each.get(key, ()):
                if judged[name][1].word != word:
                    raise UserError(
                        f"the sentence {each['says'][:40]!r} ... rests on {name} being {word}, and "
                        f"it is {judged[name][1].word}; rewrite it in tables.toml."
                    )
        names = [name for key in WORDS for name in each.get(key, ())]
        items.append(f"- {each['says']} ({', '.join(f'[{name}](#{name})' for name in names)})")
    return "\n".join(items)


def _table(judged: Iterable[tuple[Claim, Verdict]], folder: Path) -> str:
    header = ("claim", "the paper", "measured", "verdict", "why", "what would decide it", "runs")
    rows = []
    for claim, verdict in judged:
        seeds = len(side_results(claim, claim.better, folder).seeds)
        unlike = f"; unlike the paper: {claim.unlike}" if claim.unlike else ""
        row = (
            f'<a id="{claim.name}"></a>{claim.name}',
            f"{claim.says} ({claim.place}{unlike})",
            f"{claim.data}, {heading(claim.measure)}, {seeds} seeds: {verdict.figures}",
            f"**{verdict.word}**",
            verdict.reason,
            decided_by(claim, folder) if verdict.word == OPEN else "",
            "; ".join(_links(each, folder) for each in claim.files),
        )
        rows.append(row)
    return table_of(header, rows)


def _links(results: str, folder: Path) -> str:
    report = report_of(results, folder)
    base = Path(results).parent.as_posix()
    return f"[report]({base}/{report.name}), [csv]({results}), [command](#{anchor(results)})"


class Advice(NamedTuple):
    """A line of advice: the normalizer to take for a network.

    Attributes:
        network: the user's network.
        take: the normalizer to take.
        claims: the names of decided claims for or against it.
        runs: further figures.
        data: the data set of those runs.
    """

    network: str
    take: str
    claims: Sequence[str] = ()
    runs: Sequence[Side] = ()
    data: str = "photographs"


@cache
def advice() -> tuple[Advice, ...]:
    """Returns all lines of advice, in the order of the page."""
    return tuple(
        Advice(**{**each, "runs": tuple(map(side_of, each.get("runs", ())))})
        for each in read("tables.toml")["advice"]
    )


def _advice(judged: Mapping[str, tuple[Claim, Verdict]], folder: Path) -> str:
    rows = [(each.network, each.take, _evidence(each, judged, folder)) for each in advice()]
    return table_of(("your network", "take", "evidence"), rows)


def _evidence(advised: Advice, judged: Mapping[str, tuple[Claim, Verdict]], folder: Path) -> str:
    """Returns the evidence for a line; raises UserError if it rests on an open claim."""
    for name in advised.claims:
        if judged[name][1].word == OPEN:
            raise UserError(
                f"the advice for {advised.network!r} rests on {name}, which is open; take the "
                "claim out of it in tables.toml, or the advice."
            )
    evidence = [
        f"[{name}](#{name}): {judged[name][1].figures}, {judged[name][1].word}"
        for name in advised.claims
    ]
    evidence += [f"{_figure(side, folder)} ({advised.data})" for side in advised.runs]
    return "; ".join(evidence)


def _figure(side: Side, folder: Path) -> str:
    """Returns the test accuracy of some runs, over their seeds."""
    path = folder / side.results
    with reading(path, WANTED):
        return f"[{side.name}]({side.results}) {level_of(rows_like(path, side))}"
