"""The protocols of the full presets beside what the papers' texts state, field by field."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from experiments.config import Config
from experiments.methods.method import Method
from experiments.methods.optimizer import MOMENTUM
from experiments.methods.overrides import Overrides
from experiments.papers.full import dry_table, full_cells
from experiments.papers.item import Item
from experiments.papers.run import named
from experiments.papers.stated import Stated, stated
from experiments.reports.show import show_table
from experiments.reports.table import Table

#: Fields of a protocol that say how it is computed, or that others of the list contain.
HIDDEN = {
    *("dtype", "nonfinite", "ghost_groups", "accumulate", "epsilon", "clients", "constrain_head"),
    *("bundled", "scores", "only_rows", "only_columns"),
    *("rate_scale", "growing_noise", "squared_radius", "policies"),
}
#: Fields that matter for the fully connected networks alone.
SIZES = ("depth", "width")

#: Fields whose default is nothing, and says something: all rows.
SHOWN_AT_NOTHING = ("rows",)

SAME, DIFFERS, OURS = "as stated", "differs", "ours"
#: The value of a field that a protocol has not.
ABSENT = "none"


class Checked(NamedTuple):
    """A field of an item's protocol.

    Attributes:
        item: the item's name.
        field: the field's.
        cells: of the table's cells those with this value; empty where all have it.
        ours: its value.
        stated: what the paper says of it, or None.
    """

    item: str
    field: str
    cells: tuple[str, ...]
    ours: Any
    stated: Stated | None

    @property
    def verdict(self) -> str:
        """Whether it is the paper's, differs, or is ours because the paper does not state it."""
        if self.stated is None:
            return OURS
        return SAME if same(self.ours, self.stated.value) else DIFFERS


def check(item: Item, own: Sequence[Stated] | None = None) -> list[Checked]:
    """All fields of the protocol of an item's full preset, equal ones of several cells as one.

    Args:
        item: any.
        own: what the paper says of it; left out, what its file of statements has.
    """
    own = stated().get(item.name, ()) if own is None else own
    protocols = protocols_of(item)
    found: dict[tuple[str, str, Stated | None], dict[str, Any]] = {}
    for cell, protocol in protocols.items():
        for field, value in protocol.items():
            said = _said(own, field, cell)
            found.setdefault((field, repr(value), said), {})[cell] = value
    everywhere = len(protocols)
    absent = [said for said in own if _concerns_none(said, protocols)]
    return [
        Checked(item.name, field, () if len(cells) == everywhere else tuple(cells), value, said)
        for (field, _, said), cells in found.items()
        for value in [next(iter(cells.values()))]
    ] + [Checked(item.name, said.field, (), ABSENT, said) for said in absent]


def protocols_of(item: Item) -> dict[str, dict[str, Any]]:
    """The fields of each cell of an item's full preset, by the cell's name; "" for no table."""
    if item.grid is None:
        return {"": _fields(item.presets["full"].settings)}
    cells = full_cells(item)
    return {each.cell.name: _fields(each.config) | _parts(each.method) for each in cells}


def _fields(settings: Any) -> dict[str, Any]:
    """What is stated of a training in the units of the papers: rates by epochs, one optimizer."""
    shown = {name: value for name, value in named(settings).items() if name not in HIDDEN}
    if not shown.get("test_rows"):
        shown.pop("test_rows", None)
    if not isinstance(settings, Config):
        return shown
    defaults = {each.name: each.default for each in fields(settings)}
    unused = ("rate_schedule", *(() if settings.model == "mlp" else SIZES))
    shown = {
        name: value
        for name, value in shown.items()
        if name not in unused and (value or defaults[name] or name in SHOWN_AT_NOTHING)
    }
    rates = tuple((round(share * settings.epochs, 6), by) for share, by in settings.rate_schedule)
    shown |= {"optimizer": f"{settings.optimizer}, momentum {MOMENTUM:g}"}
    return shown if settings.rate_decay else shown | {"rate_schedule": rates or "half a cosine"}


def _parts(method: Method) -> dict[str, Any]:
    """The numbers in the parts of a method, by their flags' names where they have one."""
    flags = {each.name for each in fields(Overrides)}
    return {
        each.name if each.name in flags else f"{type(part).__name__}.{each.name}": value
        for part in method.parts
        for each in fields(part)
        if isinstance(value := getattr(part, each.name), int | float)
    }


def _said(stated: Sequence[Stated], field: str, cell: str) -> Stated | None:
    """The first that is said of the field and the cell."""
    return next((s for s in stated if s.field == field and re.search(s.where, cell)), None)


def _concerns_none(said: Stated, protocols: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether no cell that it is said of has the field at all."""
    return not any(
        said.field in protocol and re.search(said.where, cell)
        for cell, protocol in protocols.items()
    )


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal, numbers up to rounding."""
    if isinstance(ours, tuple | list) and isinstance(theirs, tuple | list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return bool(ours == theirs)


def check_table(checked: Iterable[Checked], *, everything: bool = False) -> Table:
    """What differs from the papers' texts, and what they do not state.

    Args:
        checked: the fields of some items.
        everything: whether what is as stated is shown too.
    """
    rows = [_row(each) for each in checked if everything or each.verdict != SAME]
    return ("item", "field", "where", "ours", "the paper's", "stated in", ""), rows


def summary(checked: Iterable[Checked]) -> str:
    """How many fields are as stated, differ, and are ours, in a sentence."""
    verdicts = [each.verdict for each in checked]
    counts = {verdict: verdicts.count(verdict) for verdict in (SAME, DIFFERS, OURS)}
    return (
        f"{len(verdicts)} fields of protocols: {counts[SAME]} as stated, {counts[DIFFERS]} differ, "
        f"{counts[OURS]} are ours, for the papers do not state them. What else differs, and why, "
        "is in experiments/papers/README.md."
    )


def _row(each: Checked) -> tuple[str, ...]:
    theirs = "" if each.stated is None else shown(each.stated.value)
    place = "" if each.stated is None else each.stated.place
    others = len(each.cells) - 1
    where = each.cells[0] + (f" and {others} more" if others else "") if each.cells else ""
    return each.item, each.field, where, shown(each.ours), theirs, place, each.verdict


def shown(value: Any) -> str:
    """A value in a word or two."""
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        steps = [f"x {step[1]:.3g} from {step[0]:g}" for step in value]
        return ", ".join(steps if len(steps) < 5 else [*steps[:2], "...", steps[-1]])
    if isinstance(value, tuple | list):
        return ", ".join(map(shown, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def show_check(items: Sequence[Item]) -> None:
    """What differs from the papers' texts; of one item everything, and its networks' shapes."""
    checked = [each for item in items for each in check(item)]
    show_table(check_table(checked, everything=len(items) == 1))
    print(f"\n{summary(checked)}")
    if len(items) == 1 and items[0].grid:
        print("\nWithout training, from shapes alone:\n")
        show_table(dry_table(items[0]))
