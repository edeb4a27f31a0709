"""A headline claim of a paper as data: the claim, and the committed runs that bear on it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, NamedTuple

#: The folder of the page's data.
HERE = Path(__file__).parent

#: ``better``: one side is better than the other. ``same``: they differ by less than the margin.
#: ``trains``: one side learns. ``fails``: one side does not learn, while the other does.
Kind = Literal["better", "same", "trains", "fails"]

#: Columns of the csv files; accuracies and wins are better if higher, other measures if lower.
#: ``wins`` are those of `experiments.papers.vcl.uci`, set by set.
Measure = (
    Literal["test_accuracy", "train_accuracy", "held_out_accuracy", "test_loss", "train_loss"]
    | Literal["kurtosis", "test_error", "wins"]
)


class Side(NamedTuple):
    """Some runs of a csv file, which a claim compares with others.

    Attributes:
        name: the name of the runs in the table.
        where: the values of columns that select their rows.
        results: the csv file, if it is not the claim's.
    """

    name: str
    where: Mapping[str, str]
    results: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        name: PAPER-WORD, the name of the row on the page.
        place: the place in the paper.
        says: the claim in words.
        results: the csv file of its runs, under experiments/results.
        better: the side that is claimed to be better, to train, or to fail.
        worse: the other side.
        measure: the column that is compared.
        kind: the kind of claim.
        margin: points or nats by which ``better`` may be worse; for ``same``, the distance.
        about: ``trained`` if the claim is about the results of training, which runs that stopped
            early do not show; ``training`` if it is about the course of training.
        data: the data set.
        unlike: differences between the runs and the paper other than size; may be empty.
        decider: the paper's item that would decide the claim at its own size, or empty.
        cells: (row, column) of that item's cells that the claim is about; by default its sides'.
        otherwise: another experiment that would decide the claim.
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
        """The csv files of the claim's sides."""
        others = (side.results for side in (self.better, self.worse) if side and side.results)
        return tuple(dict.fromkeys([self.results, *others]))

    @property
    def deciding(self) -> set[tuple[str, ...]]:
        """The cells of the item that would decide the claim; empty for an item without cells."""
        sides = [side.where for side in (self.better, self.worse) if side]
        cells = [(side["row"], side["column"]) for side in sides if "row" in side]
        return {tuple(cell) for cell in self.cells or cells}


@dataclass(frozen=True)
class Paper:
    """A paper's claims.

    Attributes:
        title: the title of its section.
        picture: the path of a picture.
        claims: the claims, in the order of the page.
        note: a note on all of them.
    """

    title: str
    picture: str
    claims: tuple[Claim, ...]
    note: str = ""


def read(name: str) -> dict[str, Any]:
    """Reads a TOML file beside this one."""
    text: dict[str, Any] = tomllib.loads((HERE / name).read_text(encoding="utf-8"))
    return text


@cache
def papers() -> tuple[Paper, ...]:
    """Returns the claims of all papers, in the order of the page."""
    files = [read(f"claims/{name}.toml") for name in ("cwo", "lcw", "normprop", "vcl", "bn")]
    return tuple(
        Paper(**{**paper, "claims": tuple(starmap(_claim, paper["claims"].items()))})
        for paper in files
    )


def _claim(name: str, fields: dict[str, Any]) -> Claim:
    sides: dict[str, Any] = {
        side: side_of(fields[side]) for side in ("better", "worse") if side in fields
    }
    return Claim(name, **{**fields, **sides})


def side_of(fields: Mapping[str, str]) -> Side:
    """Makes a side from its table: columns with their values, its name, and its own file if any."""
    where = {key: value for key, value in fields.items() if key not in ("name", "results")}
    name = fields.get("name") or where.get("row") or ", ".join(where.values())
    return Side(name, where, fields.get("results", ""))
