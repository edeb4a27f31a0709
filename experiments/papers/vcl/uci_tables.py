"""Wins, accuracy profiles and the table of all results."""

from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from experiments.papers.catalogue import read
from experiments.papers.vcl.uci_train import Settings
from experiments.reports.table import Table, mean_and_deviation

#: The digits to which the paper gives errors, and at which two methods are tied.
DIGITS = 3

Option = tuple[str, str]

#: By data set, errors of all options in the order of `options`; by activation, numbers of wins.
TAB5, TAB4 = (read("vcl/uci_reported.toml")[table] for table in ("tab5", "tab4"))


def options(settings: Settings) -> list[Option]:
    """The combinations of an activation and a normalization, in the paper's order."""
    return [(a, n) for a in settings.activations for n in settings.normalizations]


#: What a combination on a data set is known by.
PLACE = ("dataset", "activation", "normalization")


def mean_errors(chosen: pl.DataFrame, settings: Settings) -> Float[np.ndarray, "sets options"]:
    """The test errors, averaged over seeds."""
    means = chosen.group_by(PLACE, maintain_order=True).agg(pl.col("test_error").mean())
    return means["test_error"].to_numpy().reshape(-1, len(options(settings)))


def wins(errors: Float[np.ndarray, "sets options"]) -> Int[np.ndarray, " options"]:
    """On how many data sets each option has the lowest error, whoever shares it.

    Where all options are tied none wins. Errors are compared to three digits, as they are printed.
    """
    errors = np.round(errors, DIGITS)
    is_best = errors == errors.min(1, keepdims=True)
    return (is_best & ~is_best.all(1, keepdims=True)).sum(0)


def profile(
    errors: Float[np.ndarray, "sets options"], thresholds: Float[np.ndarray, " thresholds"]
) -> Float[np.ndarray, "thresholds options"]:
    """The fraction of data sets on which an accuracy is at least tau times the best option's."""
    accuracies = 1 - errors
    ratios = accuracies / accuracies.max(1, keepdims=True)
    return (ratios[None] >= thresholds[:, None, None]).mean(1)


def results_table(chosen: pl.DataFrame, settings: Settings) -> Table:
    """Table 5: the mean and deviation over seeds, and the paper's number in parentheses."""
    rows: dict[Any, list[str]] = {}
    for (name, *option), own in chosen.group_by(PLACE, maintain_order=True):
        ours = mean_and_deviation(own["test_error"].to_list(), f".{DIGITS}f")
        theirs = reported(name, *option)
        shown = ours if theirs is None else f"{ours} ({theirs:.{DIGITS}f})"
        rows.setdefault(name, [name]).append(shown)
    return ("", *map("+".join, options(settings))), list(rows.values())


def reported(dataset: Any, *option: Any) -> float | None:
    """The paper's number, where it can be read."""
    place = options(Settings()).index(option)
    return TAB5[dataset][place] if dataset in TAB5 else None
