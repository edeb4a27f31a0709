"""Numbers beside the theory's or the paper's: as findings, and as rows of results.csv."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.papers.item import NOT_TRAINED, Finding, Report

#: What is measured, before it is a float.
Number = float | np.floating[Any] | Float[Array | np.ndarray, ""]

COLUMNS = ("quantity", "ours", "reference", "difference", "holds")


class Measured(NamedTuple):
    """A number of ours and what it is compared with.

    Attributes:
        quantity: what it is.
        ours: its value.
        reference: the theory's or the paper's.
        holds: whether ours confirms it; None where it is only shown.
        source: whose the reference is, or what is wanted: "theory", "at most".
        error: the standard error of ours, where it is a mean.
    """

    quantity: str
    ours: float
    reference: float
    holds: bool | None
    source: str = "theory"
    error: float = 0.0

    def finding(self) -> Finding:
        """As a line of the report."""
        reference = f"{self.reference:.4g} ({self.source})"
        ours = f"{self.ours:.4g}" + (f" ± {self.error:.2g}" if self.error else "")
        if not math.isfinite(self.ours):
            return Finding(self.quantity, ours, reference, said=NOT_TRAINED)
        return Finding(self.quantity, ours, reference, self.holds)

    def row(self) -> tuple[object, ...]:
        """As a row of results.csv."""
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
    """Holds within a relative tolerance of the reference, and three standard errors."""
    holds = bool(np.abs(ours - reference) <= tolerance * np.abs(reference) + 3 * error)
    return Measured(quantity, float(ours), float(reference), holds, source, float(error))


def at_most(quantity: str, ours: Number, bound: Number) -> Measured:
    """Holds up to a bound."""
    return Measured(quantity, float(ours), float(bound), bool(ours <= bound), "at most")


def at_least(quantity: str, ours: Number, bound: Number) -> Measured:
    """Holds from a bound on."""
    return Measured(quantity, float(ours), float(bound), bool(ours >= bound), "at least")


def measured_report(
    measured: Sequence[Measured], figures: Mapping[str, Figure], notes: Sequence[str] = ()
) -> Report:
    """The report of an item that compares numbers: each a finding, and a row of results.csv."""
    rows = [each.row() for each in measured]
    return Report([each.finding() for each in measured], COLUMNS, rows, figures, notes)
