"""A check of the full presets' protocols against the papers' texts, field by field."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from experiments.analysis.table import Table, show_table
from experiments.config import OF_PARTS, Config
from experiments.methods.method import Method
from experiments.methods.optimizer import MOMENTUM
from experiments.papers.full import dry_table, full_cells
from experiments.papers.item import Item
from experiments.papers.run import named
from experiments.papers.stated import Stated, stated

#: Fields of a protocol about its computation, or that other fields contain.
HIDDEN = {
    *("dtype", "nonfinite", "ghost_groups", "accumulate", "epsilon", "clients", "constrain_head"),
    *("bundled", "scores", "only_rows", "only_columns"),
    *("rate_scale", "growing_noise", "squared_radius", "policies"),
}
#: Fields of fully connected networks alone.
SIZES = ("depth", "width")

#: Fields that are shown even if they are 0: ``rows``, where 0 means all rows.
SHOWN_AT_NOTHING = ("rows",)

SAME, DIFFERS, OURS = "as stated", "differs", "ours"
#: The value of a field that a protocol does not have.
ABSENT = "none"


class Checked(NamedTuple):
    """A field of an item's protocol.

    Attributes:
        item: the item's name.
        field: the field's name.
        cells: the table's cells with this value; empty if all have it.
        ours: our value.
        stated: the paper's statement of it, or None.
    """

    item: str
    field: str
    cells: tuple[str, ...]
    ours: Any
    stated: Stated | None

    @property
    def verdict(self) -> str:
        """ "as stated", "differs", or "ours" if the paper does not state the field."""
        if self.stated is None:
            return OURS
        return SAME if same(self.ours, self.stated.value) else DIFFERS


def check(item: Item, statements: Sequence[Stated] | None = None) -> list[Checked]:
    """Checks all fields of an item's full preset; cells with equal values share an entry.

    Args:
        item: the table or figure.
        statements: the paper's statements about it; None for those of its file.
    """
    statements = stated().get(item.name, ()) if statements is None else statements
    protocols = protocols_of(item)
    groups: dict[tuple[str, str, Stated | None], dict[str, Any]] = {}
    for cell, protocol in protocols.items():
        for field, value in protocol.items():
            statement = _statement(statements, field, cell)
            groups.setdefault((field, repr(value), statement), {})[cell] = value
    everywhere = len(protocols)
    absent = [each for each in statements if _concerns_none(each, protocols)]
    return [
        Checked(item.name, field, () if len(cells) == everywhere else tuple(cells), value, each)
        for (field, _, each), cells in groups.items()
        for value in [next(iter(cells.values()))]
    ] + [Checked(item.name, each.field, (), ABSENT, each) for each in absent]


def protocols_of(item: Item) -> dict[str, dict[str, Any]]:
    """Returns the fields of each cell of an item's full preset, by the cell's name.

    An item that is not a table has one entry, named "".
    """
    if item.grid is None:
        return {"": _fields(item.presets["full"].settings)}
    cells = full_cells(item)
    return {each.cell.name: _fields(each.config) | _parts(each.method) for each in cells}


def _fields(settings: Any) -> dict[str, Any]:
    """Returns the settings that papers state, in their units: rates by epochs, one optimizer."""
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
    """Returns the numbers in the parts of a method, by the names of their flags if any."""
    flags = set(OF_PARTS)
    return {
        each.name if each.name in flags else f"{type(part).__name__}.{each.name}": value
        for part in method.parts
        for each in fields(part)
        if isinstance(value := getattr(part, each.name), int | float)
    }


def _statement(stated: Sequence[Stated], field: str, cell: str) -> Stated | None:
    """Returns the first statement about the field that applies to the cell."""
    return next((s for s in stated if s.field == field and re.search(s.where, cell)), None)


def _concerns_none(statement: Stated, protocols: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns True if no cell that the statement applies to has the field."""
    return not any(
        statement.field in protocol and re.search(statement.where, cell)
        for cell, protocol in protocols.items()
    )


def same(ours: Any, theirs: Any) -> bool:
    """Returns True if two values are equal, numbers up to rounding."""
    if isinstance(ours, tuple | list) and isinstance(theirs, tuple | list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return bool(ours == theirs)


def check_table(checked: Iterable[Checked], *, everything: bool = False) -> Table:
    """Lists the fields that differ from the papers' texts, or that they do not state.

    Args:
        checked: the fields of some items.
        everything: if True, fields that are as stated are listed too.
    """
    rows = [_row(each) for each in checked if everything or each.verdict != SAME]
    return ("item", "field", "where", "ours", "the paper's", "stated in", ""), rows


def summary(checked: Iterable[Checked]) -> str:
    """Counts the fields that are as stated, differ, and are ours, in a sentence."""
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
    """Formats a value in a word or two."""
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        steps = [f"x {step[1]:.3g} from {step[0]:g}" for step in value]
        return ", ".join(steps if len(steps) < 5 else [*steps[:2], "...", steps[-1]])
    if isinstance(value, tuple | list):
        return ", ".join(map(shown, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def show_check(items: Sequence[Item]) -> None:
    """Prints the differences from the papers' texts; for one item all fields and shapes."""
    checked = [each for item in items for each in check(item)]
    show_table(check_table(checked, everything=len(items) == 1))
    print(f"\n{summary(checked)}")
    if len(items) == 1 and items[0].grid:
        print("\nWithout training, from shapes alone:\n")
        show_table(dry_table(items[0]))
