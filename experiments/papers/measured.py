"""Numbers beside the theory's or the paper's: as findings, and as rows of results.csv."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.papers.item import NOT_TRAINED, Finding, Report

#: A measured number, before its conversion to float.
Number = float | np.floating[Any] | Float[Array | np.ndarray, ""]

COLUMNS = ("quantity", "ours", "reference", "difference", "holds")


class Measured(NamedTuple):
    """A number of ours and its reference.

    Attributes:
        quantity: the name of the quantity.
        ours: our value.
        reference: the theory's or the paper's value.
        holds: True if ours confirms it; None if it is only shown.
        source: the source of the reference, or the comparison: "theory", "at most".
        error: the standard error of ours, if it is a mean.
    """

    quantity: str
    ours: float
    reference: float
    holds: bool | None
    source: str = "theory"
    error: float = 0.0

    def finding(self) -> Finding:
        """Makes a line of the report."""
        reference = f"{self.reference:.4g} ({self.source})"
        ours = f"{self.ours:.4g}" + (f" ± {self.error:.2g}" if self.error else "")
        if not math.isfinite(self.ours):
            return Finding(self.quantity, ours, reference, reason=NOT_TRAINED)
        return Finding(self.quantity, ours, reference, self.holds)

    def row(self) -> tuple[object, ...]:
        """Makes a row of results.csv."""
        difference = self.ours - self.reference
        numbers = (f"{x:.6g}" for x in (self.ours, self.reference, difference))
        judged = self.holds is not None and math.isfinite(self.ours)
        return (self.quantity, *numbers, self.holds if judged else "")


def near(
    quantity: str,
    ours: Number,
    reference: Number,
    tolerance: float,
    source: str = "theory",
    error: Number = 0.0,
) -> Measured:
    """Compares with a reference: holds within a relative tolerance and three standard errors."""
    holds = bool(np.abs(ours - reference) <= tolerance * np.abs(reference) + 3 * error)
    return Measured(quantity, float(ours), float(reference), holds, source, float(error))


def at_most(quantity: str, ours: Number, bound: Number) -> Measured:
    """Compares with an upper bound."""
    return Measured(quantity, float(ours), float(bound), bool(ours <= bound), "at most")


def at_least(quantity: str, ours: Number, bound: Number) -> Measured:
    """Compares with a lower bound."""
    return Measured(quantity, float(ours), float(bound), bool(ours >= bound), "at least")


def measured_report(
    measured: Sequence[Measured], figures: Mapping[str, Figure], notes: Sequence[str] = ()
) -> Report:
    """Makes the report of an item that compares numbers, with a finding and a row for each."""
    rows = [each.row() for each in measured]
    return Report([each.finding() for each in measured], COLUMNS, rows, figures, notes)
