"""Figure 1b: generalization error of a ReLU student against the load."""

import numpy as np

from experiments.papers.bn import loads
from experiments.papers.bn.loads import NOISE, Curve, Settings
from experiments.papers.item import Claim, Context, Report
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
    return loads.report_of(claims, settings, curves, theory, {"fig1b": figure})


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
