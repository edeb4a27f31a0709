"""Numbers beside the theory's or the paper's: as findings, and as rows of results.csv."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.papers.item import NOT_TRAINED, Finding, Report

#: A measured number, before its conversion to float.
Number = float | np.floating[Any] | Float[Array | np.ndarray, ""]

COLUMNS = ("quantity", "ours", "reference", "difference", "holds")


def compared(
    quantity: str,
    ours: Number,
    reference: Number,
    holds: bool | None = None,
    source: str = "theory",
    error: Number = 0.0,
) -> Finding:
    """Makes a finding of a number and its reference; one that is not finite confirms nothing.

    Args:
        quantity: the name of the quantity.
        ours: our value.
        reference: the theory's or the paper's value.
        holds: True if ours confirms it; None if it is only shown.
        source: the source of the reference, or the comparison: "theory", "at most".
        error: the standard error of ours, if it is a mean.
    """
    numbers = float(ours), float(reference)
    shown = f"{numbers[0]:.4g}" + (f" ± {float(error):.2g}" if error else "")
    words = f"{numbers[1]:.4g} ({source})"
    if not math.isfinite(numbers[0]):
        return Finding(quantity, shown, words, None, NOT_TRAINED, numbers)
    return Finding(quantity, shown, words, holds, "", numbers)


def near(
    quantity: str,
    ours: Number,
    reference: Number,
    tolerance: float,
    source: str = "theory",
    error: Number = 0.0,
) -> Finding:
    """Compares with a reference: holds within a relative tolerance and three standard errors."""
    holds = bool(np.abs(ours - reference) <= tolerance * np.abs(reference) + 3 * error)
    return compared(quantity, ours, reference, holds, source, error)


def at_most(quantity: str, ours: Number, bound: Number) -> Finding:
    """Compares with an upper bound."""
    return compared(quantity, ours, bound, bool(ours <= bound), "at most")


def at_least(quantity: str, ours: Number, bound: Number) -> Finding:
    """Compares with a lower bound."""
    return compared(quantity, ours, bound, bool(ours >= bound), "at least")


def measured_report(
    findings: Sequence[Finding], figures: Mapping[str, Figure], notes: Sequence[str] = ()
) -> Report:
    """Makes the report of an item that compares numbers, with a row for each finding."""
    rows = [_row(finding, *finding.numbers) for finding in findings if finding.numbers]
    return Report(findings, COLUMNS, rows, figures, notes)


def _row(finding: Finding, ours: float, reference: float) -> tuple[object, ...]:
    numbers = (f"{x:.6g}" for x in (ours, reference, ours - reference))
    return (finding.statement, *numbers, "" if finding.holds is None else finding.holds)
