"""Wins, accuracy profiles and the table of all results."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from experiments.papers.catalogue import read
from experiments.papers.vcl.uci_train import Chosen, Settings
from experiments.reports.table import Table, mean_and_deviation

#: The digits to which the paper gives errors, and at which two methods are tied.
DIGITS = 3

Option = tuple[str, str]

#: By data set, errors of all options in the order of `options`; by activation, numbers of wins.
TAB5, TAB4 = (read("vcl/uci_reported.toml")[table] for table in ("tab5", "tab4"))


def options(settings: Settings) -> list[Option]:
    """The combinations of an activation and a normalization, in the paper's order."""
    return [(a, n) for a in settings.activations for n in settings.normalizations]


def mean_errors(chosen: Sequence[Chosen], settings: Settings) -> Float[np.ndarray, "sets options"]:
    """The test errors, averaged over seeds."""
    names = dict.fromkeys(each.dataset for each in chosen)
    return np.array(
        [[np.mean(errors_of(chosen, name, o)) for o in options(settings)] for name in names]
    )


def errors_of(chosen: Sequence[Chosen], dataset: str, option: Option) -> list[float]:
    """The test errors of a combination on a data set, by seed."""
    return [each.test_error for each in chosen if each[:3] == (dataset, *option)]


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


def results_table(chosen: Sequence[Chosen], settings: Settings) -> Table:
    """Table 5: the mean and deviation over seeds, and the paper's number in parentheses."""
    header = ("", *map("+".join, options(settings)))
    rows = []
    for name in dict.fromkeys(each.dataset for each in chosen):
        rows.append((name, *(_cell(chosen, name, option) for option in options(settings))))
    return header, rows


def reported(dataset: str, option: Option) -> float | None:
    """The paper's number, where it can be read."""
    whole = Settings()
    place = options(whole).index(option)
    return TAB5[dataset][place] if dataset in TAB5 else None


def _cell(chosen: Sequence[Chosen], dataset: str, option: Option) -> str:
    ours = mean_and_deviation(errors_of(chosen, dataset, option), f".{DIGITS}f")
    theirs = reported(dataset, option)
    return ours if theirs is None else f"{ours} ({theirs:.{DIGITS}f})"
