"""A headline claim of a paper as data: what is claimed, and which committed runs speak of it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, NamedTuple

#: Where the data of the page are.
HERE = Path(__file__).parent

#: ``better``: one side is better than the other. ``same``: they differ by less than the margin.
#: ``trains``: the one side learns. ``fails``: the one side does not, while the other does.
Kind = Literal["better", "same", "trains", "fails"]

#: What is compared, by the column of the csv file; accuracies and wins should be higher, the rest
#: lower. ``wins`` are those of `experiments.papers.vcl.uci`, set by set.
Measure = (
    Literal["test_accuracy", "train_accuracy", "held_out_accuracy", "test_loss", "train_loss"]
    | Literal["kurtosis", "test_error", "wins"]
)


class Side(NamedTuple):
    """Some runs of a csv file.

    Attributes:
        name: what they are called in the table.
        where: the values of columns that pick their rows.
        results: the csv file, if it is another than the claim's.
    """

    name: str
    where: Mapping[str, str]
    results: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        name: PAPER-WORD; it names the row on the page.
        place: where the paper says it.
        says: what it says.
        results: the csv file that it is judged from, under experiments/results.
        better: the side that is said to be better, or the one that trains or does not.
        worse: the other.
        measure: of what.
        kind: what is claimed.
        margin: points, or nats: how much worse the better side may be; for ``same``, how far apart.
        about: whether the paper speaks of what ``trained`` networks reach, which runs that stopped
            early cannot say, or of ``training``: whether and how fast it goes.
        data: what was trained on.
        unlike: what in the runs is not as in the paper; empty for nothing but their size.
        decider: the paper's item that would decide it at its own size; empty for something else.
        cells: (row, column) of the cells of that item which it is about; its sides' where left out.
        otherwise: what else would decide it.
    """

    name: str
    place: str
    says: str
    results: str
    better: Side
    worse: Side | None = None
    measure: Measure = "test_accuracy"
    kind: Kind = "better"
    margin: float = 0.0
    about: Literal["trained", "training"] = "trained"
    data: str = "photographs"
    unlike: str = ""
    decider: str = ""
    cells: Sequence[Sequence[str]] = ()
    otherwise: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The csv files of its sides."""
        others = (side.results for side in (self.better, self.worse) if side and side.results)
        return tuple(dict.fromkeys([self.results, *others]))

    @property
    def deciding(self) -> set[tuple[str, ...]]:
        """The cells of the item that would decide it; none for what is no table."""
        sides = [side.where for side in (self.better, self.worse) if side]
        own = [(side["row"], side["column"]) for side in sides if "row" in side]
        return {tuple(cell) for cell in self.cells or own}


@dataclass(frozen=True)
class Paper:
    """A paper's claims.

    Attributes:
        title: of its section.
        picture: the curves that show it best.
        claims: in the order of the page.
        note: what is said of all of them.
    """

    title: str
    picture: str
    claims: tuple[Claim, ...]
    note: str = ""


def read(name: str) -> dict[str, Any]:
    """A file of data beside this one."""
    text: dict[str, Any] = tomllib.loads((HERE / name).read_text(encoding="utf-8"))
    return text


@cache
def papers() -> tuple[Paper, ...]:
    """All claims, in the order of the page."""
    found = [read(f"claims/{name}.toml") for name in ("cwo", "lcw", "normprop", "vcl", "bn")]
    return tuple(
        Paper(**{**paper, "claims": tuple(starmap(_claim, paper["claims"].items()))})
        for paper in found
    )


def _claim(name: str, fields: dict[str, Any]) -> Claim:
    sides: dict[str, Any] = {
        side: side_of(fields[side]) for side in ("better", "worse") if side in fields
    }
    return Claim(name, **{**fields, **sides})


def side_of(fields: Mapping[str, str]) -> Side:
    """A side by its table: columns and their values; its name, and its file, if it has its own."""
    where = {key: value for key, value in fields.items() if key not in ("name", "results")}
    name = fields.get("name") or where.get("row") or ", ".join(where.values())
    return Side(name, where, fields.get("results", ""))
