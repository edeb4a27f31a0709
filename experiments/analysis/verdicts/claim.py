"""Claim of a paper: its words, the committed runs that bear on it, and what would decide it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: ``better``: one side is better than the other. ``same``: they differ by less than the margin.
#: ``trains``: one side learns. ``fails``: one side does not learn, while the other does.
Kind = Literal["better", "same", "trains", "fails"]

#: Columns of the csv files; accuracies and wins are better if higher, other measures if lower.
#: ``wins`` are those of `experiments.analysis.statistics`, set by set.
Measure = Literal["test_accuracy", "train_accuracy", "test_loss", "train_loss", "kurtosis", "wins"]


class Side(NamedTuple):
    """Runs that a claim compares with others: some rows of FOLDER/results.csv.

    Attributes:
        folder: the folder under experiments/results.
        where: the values of columns that select the rows.
        name: the name of the runs on the page.
    """

    folder: str
    where: Mapping[str, str]
    name: str

    @property
    def file(self) -> str:
        """The csv file."""
        return f"{self.folder}/results.csv"


def side(folder: str, method: str = "", name: str = "", **columns: str) -> Side:
    """Returns the runs of a method, or those with these values of other columns."""
    where = columns | ({"method": method} if method else {})
    return Side(folder, where, name or columns.get("row") or method or ", ".join(where.values()))


def sides(folder: str, *methods: str) -> tuple[Side, ...]:
    """Returns the runs of one or two methods in a folder."""
    return tuple(side(folder, method) for method in methods)


class Source(NamedTuple):
    """Place of a claim in its paper, and what would decide it at the paper's size.

    Attributes:
        place: the place.
        item: the name of its table or figure, whose training would decide the claim.
        cells: the rows and columns of the item that the claim is about; empty without cells.
        otherwise: the cost of an item without cells, or another experiment, in words.
    """

    place: str
    item: str = ""
    cells: frozenset[tuple[str, str]] = frozenset()
    otherwise: str = ""


@dataclass(frozen=True)
class Table:
    """A column of a paper's table; called with rows, the source of a claim about them."""

    place: str
    item: str
    column: str = ""

    def __call__(self, *rows: str) -> Source:
        """Returns the source of a claim about some rows."""
        return Source(self.place, self.item, frozenset((row, self.column) for row in rows))


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        name: PAPER-WORD, the name of the row on the page.
        says: the claim in words.
        sides: the side that is claimed to be better, to train, or to fail; then the other side.
        source: the place in the paper.
        kind: the kind of claim.
        measure: the column that is compared.
        margin: points or nats by which the better side may be worse; for ``same``, the distance.
        about: ``trained`` if the claim is about the results of training, which runs that stopped
            early do not show; ``training`` if it is about the course of training.
        data: the data set.
        unlike: differences between the runs and the paper other than size; may be empty.
    """

    name: str
    says: str
    sides: tuple[Side, ...]
    source: Source
    kind: Kind = "better"
    measure: Measure = "test_accuracy"
    margin: float = 0.0
    about: Literal["trained", "training"] = "trained"
    data: str = "photographs"
    unlike: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The csv files of the sides."""
        return tuple(dict.fromkeys(side.file for side in self.sides))


class Paper(NamedTuple):
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
