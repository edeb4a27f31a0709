"""A headline claim of a paper as data: what is claimed, and which committed runs speak of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

#: ``better``: one side is better than the other. ``same``: they differ by less than the margin.
#: ``trains``: the one side learns. ``fails``: the one side does not, while the other does.
Kind = Literal["better", "same", "trains", "fails"]

#: What is compared, by the column of the csv file; accuracies and wins should be higher, the rest
#: lower. ``wins`` are those of `experiments.papers.vcl.uci_tables`, set by set.
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


class Decider(NamedTuple):
    """What would decide a claim: cells of a paper's item at the paper's own size.

    Attributes:
        item: its name; empty where it is something else.
        cells: (row, column) of the cells that the claim is about; empty for what is no table.
        said: what else it is.
    """

    item: str
    cells: tuple[tuple[str, str], ...] = ()
    said: str = ""


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
        scale: why the runs cannot decide, whatever they show; empty where they can.
        decider: what would decide it.
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
    scale: str = ""
    decider: Decider | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The csv files of its sides."""
        others = (side.results for side in (self.better, self.worse) if side and side.results)
        return tuple(dict.fromkeys([self.results, *others]))


def method(name: str, **where: str) -> Side:
    """The runs of a method, with other columns if some are named."""
    return Side(", ".join([name, *where.values()]), {"method": name, **where})


def of(side: Side, results: str, name: str) -> Side:
    """The same of another csv file, under another name."""
    return side._replace(results=results, name=name)


def row(name: str, column: str) -> Side:
    """The runs of a cell of a paper's table."""
    return Side(name, {"row": name, "column": column})


def cells(item: str, column: str, *rows: str) -> Decider:
    """Some rows of a paper's table, in one of its columns, at the paper's own size."""
    return Decider(item, tuple((name, column) for name in rows))


def of_rows(
    name: str,
    place: str,
    says: str,
    item: str,
    better: str,
    worse: str,
    column: str,
    **changes: Any,
) -> Claim:
    """Of two rows of a paper's table, which was trained on photographs.

    Args:
        name: of the claim, as `Claim` has it; so are the next two.
        place: where the paper says it.
        says: what it says.
        item: the table; its results lie in cifar10-jpeg, and at its own size it would decide.
        better: the row that is said to be better.
        worse: the other.
        column: of both.
        **changes: further fields of `Claim`.
    """
    results = f"cifar10-jpeg/{item.replace('/', '-')}/results.csv"
    sides, decider = (row(better, column), row(worse, column)), cells(item, column, better, worse)
    return Claim(name, place, says, results, *sides, decider=decider, **changes)
