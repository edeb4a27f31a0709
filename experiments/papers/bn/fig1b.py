"""Figure 1b: generalization error of a ReLU student against the load."""

import numpy as np

from experiments.papers.bn import loads
from experiments.papers.bn.loads import NOISE, Curve, Settings
from experiments.papers.item import Claim, Context, Item, Report
from experiments.reports.picture import COLOURS, new_figure
from jaxnorm.theory.batch_norm import generalization_error

#: A second load to read SGD at, near its divergence at 2.
HIGH_LOAD = 1.7


def run(settings: Settings, context: Context) -> Report:
    """Trains every method at every load; BN is held against WN + gamma decay, zeta = 1/(4M)."""
    curves = loads.train_all(settings, True, 1 / (4 * settings.batch_size), context)
    trained = np.array(settings.loads)
    sgd = np.asarray(generalization_error("sgd_relu", trained, NOISE))
    theory = {"sgd": sgd, "bn": curves[1].error}
    figure = new_figure(width=10, height=5)
    axes = figure.axes[0]
    dense = np.linspace(0.02, min(trained.max(), 1.98), 400)
    for noise, label, color in (
        (NOISE, "SGD, theory", COLOURS[0]),
        (0.0, "SGD, theory, no noise", "0.5"),
    ):
        error = np.asarray(generalization_error("sgd_relu", dense, noise))
        axes.plot(dense, error, color=color, label=label)
    loads.draw_points(axes, settings, curves, "ReLU", (0.4, 2))
    claims = _claims(settings, curves, theory)
    return loads.report_of(claims, settings, curves, theory, {"fig1b": figure}, NOTES)


NOTES = (
    "In results.csv the theory of bn is the simulated error of WN + gamma decay with zeta = "
    "1/(4M), as in the paper; WN + gamma decay itself has none.",
    "Verdict, from the cpu preset: BN corresponds to zeta = 1/(4M) only while its training is "
    "short. At load 0.9 its error is 0.85, 0.87, 0.96 and 1.29 after 30, 100, 300 and 1000 N "
    "samples, that of WN + gamma decay 0.84.",
    "The closed form of SGD counts positive targets only, all of them fitted. Simulated SGD stays "
    "below it by 0.04 at load 0.9 and by 0.2 at load 1.7, and does not diverge at load 2: the "
    "negative targets, where the unit is active, hold the weights back.",
)


def _claims(settings: Settings, curves: list[Curve], theory: dict[str, np.ndarray]) -> list[Claim]:
    read, high = (loads.nearest(settings, load) for load in (loads.READ_AT, HIGH_LOAD))
    sgd, decayed, *batch = curves
    its_error = decayed.standard_error[read]
    return [
        *(loads.compare(settings, bn, read, theory["bn"][read], its_error) for bn in batch),
        *(
            loads.compare(settings, sgd, at, theory["sgd"][at])
            for at in dict.fromkeys((read, high))
        ),
    ]


ITEM = Item(
    "bn/fig1b",
    "generalization error against load, ReLU student, M = 16",
    "BN corresponds to WN + gamma decay with zeta = 1/(4M); SGD diverges at load 2",
    run,
    loads.load_presets(16, (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.9, 2.1), last=2.1),
)
