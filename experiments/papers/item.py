"""A table or figure of a paper as data: a protocol, three presets, and the comparisons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure

from experiments.config import HERE, Workers
from experiments.papers.grid import Grid

PresetName = Literal["smoke", "cpu", "full"]


#: The label of a preset without differences from the protocol.
FULL = "the paper's sizes; what else differs from its text is in experiments/papers/README.md"


class Preset(NamedTuple):
    """One size of an item.

    Attributes:
        settings: a NamedTuple or a `Protocol` of sizes, seeds, learning rates and everything else
            that the paper leaves open. The report prints every field.
        cost: the cost in words: "10 s on 2 CPU cores".
        label: the differences from the paper's protocol.
    """

    settings: Any
    cost: str
    label: str = FULL


#: The reasons why a comparison is neither yes nor no.
UNDECIDED, NOT_TRAINED = "undecided", "not trained"


class Finding(NamedTuple):
    """A number or claim of the paper (or of its theory) beside ours.

    Attributes:
        statement: the comparison: "error at load 0.9, BN, M = 32".
        ours: our value, with its spread if it has one.
        reference: the paper's or the theory's value.
        holds: True if ours confirms it; None if it is only shown, or not decided.
        reason: why it is not decided, in a word or two.
        numbers: ours and the reference for results.csv, if they are numbers.
    """

    statement: str
    ours: str
    reference: str
    holds: bool | None = None
    reason: str = ""
    numbers: tuple[float, float] | None = None


#: The header and the rows of a csv file.
Rows = tuple[Sequence[str], Sequence[Sequence[object]]]


class Report(NamedTuple):
    """Report of an item.

    Attributes:
        findings: the comparisons, in the order of importance.
        columns: the header of results.csv.
        rows: the rows of results.csv.
        figures: the pictures by name (without .png), made by `new_figure`.
        notes: sentences for the report about the findings.
        curves: the header and rows of curves.csv; the lines of the pictures if there are none.
    """

    findings: Sequence[Finding]
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    figures: Mapping[str, Figure]
    notes: Sequence[str] = ()
    curves: Rows = ((), ())


class Context(NamedTuple):
    """Arguments of an item's run besides its settings.

    Attributes:
        data_dir: the folder of the paper's data, or None.
        out: the folder of the report; an item may keep unfinished work in it.
        advance: ``advance(fraction, what)`` moves the progress bar to a fraction of the work.
        workers: the processes, or the cluster, of a table's trainings.
    """

    data_dir: Path | None
    out: Path
    advance: Callable[[float, str], None]
    workers: Workers = HERE


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper.

    Attributes:
        name: PAPER/ITEM, its name on the command line.
        title: its contents, in a line.
        reported: the paper's report, in a line.
        run: ``(settings, context) -> Report``, with the settings of the chosen preset.
        smoke: the preset of seconds.
        cpu: the preset of minutes, reduced.
        full: the preset with the paper's protocol.
        grid: the table of trainings, or None.
    """

    name: str
    title: str
    reported: str
    run: Callable[[Any, Context], Report]
    smoke: Preset
    cpu: Preset
    full: Preset
    grid: Grid | None = None

    @property
    def presets(self) -> Mapping[PresetName, Preset]:
        """The presets by name, from the smallest to the largest."""
        return {"smoke": self.smoke, "cpu": self.cpu, "full": self.full}

    @property
    def notes(self) -> list[str]:
        """The paragraphs of ``notes.md`` on the item, for its report; none if it is not there."""
        text = Path(__file__).with_name("notes.md").read_text(encoding="utf-8")
        for section in text.split("\n## "):
            heading, *paragraphs = section.strip().split("\n\n")
            if self.name in heading.split(", "):
                return [" ".join(paragraph.split()) for paragraph in paragraphs]
        return []
