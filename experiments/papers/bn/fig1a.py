"""Figure 1a: generalization error of a linear student against the load."""

import numpy as np
from matplotlib.axes import Axes

from experiments.papers.bn import loads
from experiments.papers.bn.loads import NOISE, Curve, Settings
from experiments.papers.item import Claim, Context, Report
from experiments.reports.picture import COLOURS, new_figure
from jaxnorm.theory.batch_norm import generalization_error


def run(settings: Settings, context: Context) -> Report:
    """Trains every method at every load and holds the errors against the closed forms."""
    decay = 1 / (2 * settings.batch_size)
    curves = loads.train_all(settings, False, decay, context)
    trained = np.array(settings.loads)
    with np.errstate(all="ignore"):
        sgd = np.asarray(generalization_error("sgd_linear", trained, NOISE))
        ridge = _ridge(trained, trained * decay)
    theory = {"sgd": sgd, "wn+gamma-decay": ridge, "bn": ridge}
    figure = new_figure(width=10, height=5)
    _draw_theory(figure.axes[0], trained.max(), decay)
    loads.draw_points(figure.axes[0], settings, curves, "Linear", (0, 3))
    claims = _claims(settings, curves, theory)
    return loads.report_of(claims, settings, curves, theory, {"fig1a": figure})


def _ridge(loads: np.ndarray, decay: np.ndarray | float) -> np.ndarray:
    return np.asarray(generalization_error("wn_linear", loads, NOISE, decay))


def _draw_theory(axes: Axes, highest: float, decay: float) -> None:
    dense = np.linspace(0.02, highest, 400)
    sgd = np.asarray(generalization_error("sgd_linear", dense, NOISE))
    axes.plot(dense, sgd, color=COLOURS[0], label="SGD, theory")
    for z, style, color, label in (
        (dense * decay, "-", COLOURS[1], "z = load/(2M)"),
        (decay, "--", COLOURS[1], "z = 1/(2M)"),
        (0.25, "-.", "0.5", "z = 0.25"),
    ):
        axes.plot(dense, _ridge(dense, z), style, color=color, label=f"WN + decay, {label}")


def _claims(settings: Settings, curves: list[Curve], theory: dict[str, np.ndarray]) -> list[Claim]:
    read, last = loads.nearest(settings, loads.READ_AT), curves[-1]
    return [
        *(loads.compare(settings, curve, read, theory[curve.method][read]) for curve in curves),
        Claim(
            f"training error at load {settings.loads[read]}, bn, {last.length} N samples",
            f"{last.training[read]:.2g}",
            f"{curves[1].training[read]:.2g} (WN + gamma decay)",
        ),
    ]
