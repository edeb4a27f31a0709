"""Tables 4 and 5 and figure 3: nine combinations on all of the larger UCI data sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, STYLES, new_figure
from experiments.analysis.statistics import mean_and_deviation, mean_and_interval, wins
from experiments.analysis.table import Table, markdown
from experiments.papers.catalogue import read
from experiments.papers.item import Context, Finding, Report
from experiments.papers.vcl.uci_train import Settings, train_all

#: The digits of the paper's errors, to which two methods may be tied.
DIGITS = 3

Option = tuple[str, str]

#: The errors of all options by data set, in the order of `options`; numbers of wins by activation.
TAB5, TAB4 = (read("vcl/uci_reported.toml")[table] for table in ("tab5", "tab4"))

#: The columns that identify a combination on a data set.
PLACE = ("dataset", "activation", "normalization")

NAMES = {"relu": "ReLU", "elu": "ELU", "selu": "SELU"}

#: The lowest threshold of the profile.
LOWEST = 0.8


def run(settings: Settings, context: Context) -> Report:
    """Trains missing combinations, and reports both tables and the figure."""
    chosen = train_all(settings, context)
    errors = mean_errors(chosen, settings)
    table = markdown(results_table(chosen, settings))
    papers = [reported(*place) for place in chosen.select(PLACE).iter_rows()]
    rows = chosen.with_columns(reported_error=pl.Series(papers)).with_columns(
        pl.col("validation_error", "test_error").round_sig_figs(6)
    )
    findings, figures = findings_of(errors, settings), {"profile": draw_profile(errors, settings)}
    return Report(findings, rows.columns, rows.rows(), figures, (table,))


def findings_of(errors: Float[np.ndarray, "sets options"], settings: Settings) -> list[Finding]:
    """Compares wins with the paper's claims, and with its numbers of wins."""
    sets, names = len(errors), settings.normalizations
    by_activation = dict(
        zip(settings.activations, np.split(errors, len(settings.activations), 1), strict=True)
    )
    orderings, means, counts = [], [], []
    for activation, columns in by_activation.items():
        label, won = NAMES[activation], dict(zip(names, wins(columns).tolist(), strict=True))
        paper = dict(zip(Settings().normalizations, TAB4[activation], strict=True))
        orderings += [
            Finding(
                f"{better} wins more often than {worse}, {label}",
                f"{won[better]} against {won[worse]}",
                "more often",
                won[better] > won[worse],
            )
            for better, worse in (("vcl", "bn"), ("bn", "none"))
        ]
        means.append(_means(f"mean test error over the sets, %, {label}", columns, names))
        counts += [
            Finding(
                f"wins of {name}, {label}", f"{won[name]} of {sets} sets", f"{paper[name]} of 44"
            )
            for name in names
        ]
    return [*orderings, _best_of_all(errors, settings), *means, *counts]


def _best_of_all(errors: Float[np.ndarray, "sets options"], settings: Settings) -> Finding:
    named = sorted(zip(wins(errors), map("+".join, options(settings)), strict=True), reverse=True)
    most = {name for count, name in named if count == named[0][0]}
    listed = ", ".join(f"{name} {count}" for count, name in named)
    holds = bool(most & {"selu+vcl", "elu+vcl"})
    return Finding("most wins among all combinations", listed, "selu+vcl 11, elu+vcl 11", holds)


def _means(
    statement: str, errors: Float[np.ndarray, "sets normalizations"], names: Sequence[str]
) -> Finding:
    """Returns the means over data sets, and the interval of the difference of VCL and BN."""
    columns = dict(zip(names, 100 * errors.T, strict=True))
    listed = ", ".join(f"{name} {column.mean():.2f}" for name, column in columns.items())
    gained = mean_and_interval(columns["vcl"] - columns["bn"], "+.2f")
    return Finding(statement, f"{listed}; VCL - BN {gained}", "")


def draw_profile(errors: Float[np.ndarray, "sets options"], settings: Settings) -> Figure:
    """Draws figure 3: a curve per combination, thresholds from 1 downwards."""
    thresholds = np.linspace(1, LOWEST, 401)
    curves = profile(errors, thresholds)
    figure = new_figure(width=7.5, height=5)
    axes = figure.axes[0]
    for (activation, normalization), curve in zip(options(settings), curves.T, strict=True):
        axes.plot(
            thresholds,
            curve,
            drawstyle="steps-post",
            color=COLOURS[settings.activations.index(activation)],
            linestyle=STYLES[::-1][settings.normalizations.index(normalization)],
            label=f"{NAMES[activation]}, {normalization}",
        )
    axes.set(
        xlim=(1, LOWEST),
        ylim=(0, 1.02),
        xlabel=r"threshold $\tau$",
        ylabel=r"sets with accuracy at least $\tau$ times the best",
    )
    axes.legend(loc="lower right", fontsize=9, ncols=len(settings.activations))
    return figure


def options(settings: Settings) -> list[Option]:
    """Returns the combinations of activation and normalization, in the paper's order."""
    return [(a, n) for a in settings.activations for n in settings.normalizations]


def mean_errors(chosen: pl.DataFrame, settings: Settings) -> Float[np.ndarray, "sets options"]:
    """Averages the test errors over seeds."""
    means = chosen.group_by(PLACE, maintain_order=True).agg(pl.col("test_error").mean())
    return means["test_error"].to_numpy().reshape(-1, len(options(settings)))


def profile(
    errors: Float[np.ndarray, "sets options"], thresholds: Float[np.ndarray, " thresholds"]
) -> Float[np.ndarray, "thresholds options"]:
    """Returns the fraction of data sets on which an accuracy is at least tau times the best one."""
    accuracies = 1 - errors
    ratios = accuracies / accuracies.max(1, keepdims=True)
    return (ratios[None] >= thresholds[:, None, None]).mean(1)


def results_table(chosen: pl.DataFrame, settings: Settings) -> Table:
    """Makes table 5: the mean and deviation over seeds, with the paper's number in parentheses."""
    rows: dict[Any, list[str]] = {}
    for (name, *option), runs in chosen.group_by(PLACE, maintain_order=True):
        ours = mean_and_deviation(runs["test_error"].to_list(), f".{DIGITS}f")
        theirs = reported(name, *option)
        shown = ours if theirs is None else f"{ours} ({theirs:.{DIGITS}f})"
        rows.setdefault(name, [name]).append(shown)
    return ("", *map("+".join, options(settings))), list(rows.values())


def reported(dataset: Any, *option: Any) -> float | None:
    """Returns the paper's number, or None."""
    place = options(Settings()).index(option)
    return TAB5[dataset][place] if dataset in TAB5 else None
