"""What a table or figure of a paper is, as data: a protocol, three presets, and what to compare."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure

from experiments.papers.grid import Grid
from experiments.settings import HERE, Workers

PresetName = Literal["smoke", "cpu", "full"]


class Preset(NamedTuple):
    """One size of an item.

    Attributes:
        settings: a NamedTuple of everything that the protocol leaves open: sizes, seeds, learning
            rates, and what the paper is silent about. The report prints every field.
        cost: what it takes, in words: "10 s on 2 CPU cores".
        label: how the preset differs from the paper's protocol; empty if it does not.
    """

    settings: Any
    cost: str
    label: str = ""


#: smoke (seconds), cpu (minutes, reduced), full (the paper's protocol).
SIZES: tuple[PresetName, ...] = ("smoke", "cpu", "full")
Presets = Mapping[PresetName, Preset]

#: What stands in the place of yes or no.
UNDECIDED, NOT_TRAINED = "undecided", "not trained"


class Finding(NamedTuple):
    """One number or statement of the paper (or of its theory) beside ours.

    Attributes:
        statement: what is compared: "error at load 0.9, BN, M = 32".
        ours: our value, with its spread where there is one.
        reference: the paper's or the theory's value.
        holds: whether ours confirms it; None where it is only shown, or cannot be said.
        said: why it cannot be said, in a word or two.
    """

    statement: str
    ours: str
    reference: str
    holds: bool | None = None
    said: str = ""


class Report(NamedTuple):
    """What an item found.

    Attributes:
        findings: what is compared, in the order of importance.
        columns: the header of results.csv.
        rows: its rows.
        figures: the pictures by name (without .png), made by `experiments.reports.new_figure`.
        notes: sentences for the report about what was found.
    """

    findings: Sequence[Finding]
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    figures: Mapping[str, Figure]
    notes: Sequence[str] = ()


class Context(NamedTuple):
    """What a run is given besides its settings.

    Attributes:
        data_dir: the folder of the paper's data, or None.
        out: the folder of the report; an item may keep unfinished work in it.
        advance: ``advance(fraction, what)``: for the progress bar, the part that is done (0 to 1).
        workers: how many trainings of a table run at once, and where.
    """

    data_dir: Path | None
    out: Path
    advance: Callable[[float, str], None]
    workers: Workers = HERE


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper.

    Attributes:
        name: PAPER/ITEM, as the command line takes it.
        title: what it shows, in a line.
        reported: what the paper reports, in a line.
        notes: sentences for the report: verdicts and what explains them.
        run: ``(settings, context) -> Report``, with the settings of the chosen preset.
        presets: its three sizes.
        grid: the table of trainings, where it is one.
    """

    name: str
    title: str
    reported: str
    notes: tuple[str, ...]
    run: Callable[[Any, Context], Report]
    presets: Presets
    grid: Grid | None = None
