"""Tables 4 and 5 and figure 3: nine combinations on all of the larger UCI data sets."""

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from experiments.papers.item import Claim, Context, Report
from experiments.papers.vcl.uci_tables import (
    TAB4,
    mean_errors,
    options,
    profile,
    reported,
    results_table,
    wins,
)
from experiments.papers.vcl.uci_train import Chosen, Settings, train_all
from experiments.reports.picture import COLOURS, STYLES, new_figure
from experiments.reports.table import markdown

COLUMNS = (*Chosen._fields, "reported_error")

NAMES = {"relu": "ReLU", "elu": "ELU", "selu": "SELU"}

#: The lowest threshold of the profile.
LOWEST = 0.8


def run(settings: Settings, context: Context) -> Report:
    """Trains what is not trained yet, and reports all three."""
    chosen = train_all(settings, context)
    errors = mean_errors(chosen, settings)
    table = markdown(results_table(chosen, settings))
    claims, figures = claims_of(errors, settings), {"profile": draw_profile(errors, settings)}
    return Report(claims, COLUMNS, [_row(each) for each in chosen], figures, (table,))


def claims_of(errors: Float[np.ndarray, "sets options"], settings: Settings) -> list[Claim]:
    """What the paper says of the wins, and all wins beside its own."""
    by_activation = {
        activation: wins(errors[:, [o[0] == activation for o in options(settings)]])
        for activation in settings.activations
    }
    claims = [
        claim
        for activation, counts in by_activation.items()
        for claim in _orderings(activation, dict(zip(settings.normalizations, counts, strict=True)))
    ]
    claims.append(_best_of_all(wins(errors), settings))
    claims += [_means(errors, activation, settings) for activation in settings.activations]
    for activation, counts in by_activation.items():
        paper = dict(zip(Settings().normalizations, TAB4[activation], strict=True))
        name, total = NAMES[activation], len(errors)
        claims += [
            Claim(f"wins of {n}, {name}", f"{count} of {total} sets", f"{paper[n]} of 44")
            for n, count in zip(settings.normalizations, counts, strict=True)
        ]
    return claims


def _orderings(activation: str, counts: dict[str, np.integer]) -> list[Claim]:
    return [
        Claim(
            f"{better} wins more often than {worse}, {NAMES[activation]}",
            f"{counts[better]} against {counts[worse]}",
            "more often",
            bool(counts[better] > counts[worse]),
        )
        for better, worse in (("vcl", "bn"), ("bn", "none"))
    ]


def _best_of_all(counts: Int[np.ndarray, " options"], settings: Settings) -> Claim:
    named = sorted(zip(counts, map("+".join, options(settings)), strict=True), reverse=True)
    most = {name for count, name in named if count == named[0][0]}
    listed = ", ".join(f"{name} {count}" for count, name in named)
    holds = bool(most & {"selu+vcl", "elu+vcl"})
    return Claim("most wins among all combinations", listed, "selu+vcl 11, elu+vcl 11", holds)


def _means(errors: Float[np.ndarray, "sets options"], activation: str, settings: Settings) -> Claim:
    """The mean over data sets, and how the difference of VCL and BN varies between them."""
    columns = {
        n: 100 * errors[:, options(settings).index((activation, n))]
        for n in settings.normalizations
    }
    gains = columns["vcl"] - columns["bn"]
    deviation = gains.std() / max(len(gains) - 1, 1) ** 0.5
    listed = ", ".join(f"{name} {column.mean():.2f}" for name, column in columns.items())
    return Claim(
        f"mean test error over the sets, %, {NAMES[activation]}",
        f"{listed}; VCL - BN {gains.mean():+.2f} ± {deviation:.2f} (standard error)",
        "",
    )


def draw_profile(errors: Float[np.ndarray, "sets options"], settings: Settings) -> Figure:
    """Figure 3: a curve for each combination, thresholds from 1 downwards."""
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


def _row(chosen: Chosen) -> tuple[object, ...]:
    *rest, validation, test = chosen
    paper = reported(chosen.dataset, (chosen.activation, chosen.normalization))
    return (*rest, f"{validation:.6g}", f"{test:.6g}", "" if paper is None else paper)
