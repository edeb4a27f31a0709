"""Figures 1a and 1b: generalization error against the load, of a linear and of a ReLU student."""

import numpy as np
from matplotlib.axes import Axes

from experiments.analysis.picture import COLOURS, new_figure
from experiments.papers.bn.loads import NOISE, Curve, Settings, draw_points, train_all
from experiments.papers.item import Context, Finding, Report
from experiments.papers.measured import Number, near
from jaxnorm.theory.batch_norm import generalization_error

#: The load of the findings, where the curves are far apart; then a load at which SGD with a ReLU is
#: near its divergence at 2.
READ_AT, HIGH_LOAD = 0.9, 1.7
COLUMNS = (
    *("method", "length", "load", "error", "standard_error", "theory", "difference"),
    *("training_error", "error_with_population_statistics"),
)


def run(settings: Settings, context: Context, rectified: bool) -> Report:
    """Trains every method at every load, and compares the errors with the closed forms.

    For a ReLU student BN is compared with WN + gamma decay, since it has no closed form.
    """
    decay = 1 / ((4 if rectified else 2) * settings.batch_size)
    curves = train_all(settings, rectified, decay, context)
    trained = np.array(settings.loads)
    figure = new_figure(width=10, height=5)
    axes = figure.axes[0]
    if rectified:
        theory = {"sgd": _error("sgd_relu", trained), "bn": curves[1].error}
        _draw_relu_theory(axes, trained.max())
        draw_points(axes, settings, curves, "ReLU", (0.4, 2))
        findings = _relu_findings(settings, curves, theory)
    else:
        with np.errstate(all="ignore"):
            ridge = _error("wn_linear", trained, NOISE, trained * decay)
            theory = {"sgd": _error("sgd_linear", trained), "wn+gamma-decay": ridge, "bn": ridge}
        _draw_linear_theory(axes, trained.max(), decay)
        draw_points(axes, settings, curves, "Linear", (0, 3))
        findings = _linear_findings(settings, curves, theory)
    name = "fig1b" if rectified else "fig1a"
    return Report(findings, COLUMNS, _rows(settings, curves, theory), {name: figure})


def _error(
    kind: str, loads: np.ndarray, noise: float = NOISE, decay: np.ndarray | float = 0.0
) -> np.ndarray:
    return np.asarray(generalization_error(kind, loads, noise, decay))


def _draw_linear_theory(axes: Axes, highest: float, decay: float) -> None:
    dense = np.linspace(0.02, highest, 400)
    axes.plot(dense, _error("sgd_linear", dense), color=COLOURS[0], label="SGD, theory")
    for z, style, color, label in (
        (dense * decay, "-", COLOURS[1], "z = load/(2M)"),
        (decay, "--", COLOURS[1], "z = 1/(2M)"),
        (0.25, "-.", "0.5", "z = 0.25"),
    ):
        ridge = _error("wn_linear", dense, NOISE, z)
        axes.plot(dense, ridge, style, color=color, label=f"WN + decay, {label}")


def _draw_relu_theory(axes: Axes, highest: float) -> None:
    dense = np.linspace(0.02, min(highest, 1.98), 400)
    axes.plot(dense, _error("sgd_relu", dense), color=COLOURS[0], label="SGD, theory")
    quiet = _error("sgd_relu", dense, 0.0)
    axes.plot(dense, quiet, color="0.5", label="SGD, theory, no noise")


def _linear_findings(
    settings: Settings, curves: list[Curve], theory: dict[str, np.ndarray]
) -> list[Finding]:
    read, last = _nearest(settings, READ_AT), curves[-1]
    return [
        *(_compare(settings, curve, read, theory[curve.method][read]) for curve in curves),
        Finding(
            f"training error at load {settings.loads[read]}, bn, {last.length} N samples",
            f"{last.training[read]:.2g}",
            f"{curves[1].training[read]:.2g} (WN + gamma decay)",
        ),
    ]


def _relu_findings(
    settings: Settings, curves: list[Curve], theory: dict[str, np.ndarray]
) -> list[Finding]:
    read, high = (_nearest(settings, load) for load in (READ_AT, HIGH_LOAD))
    sgd, decayed, *batch = curves
    error, spread = theory["bn"][read], decayed.standard_error[read]
    return [
        *(_compare(settings, bn, read, error, spread) for bn in batch),
        *(_compare(settings, sgd, at, theory["sgd"][at]) for at in dict.fromkeys((read, high))),
    ]


def _nearest(settings: Settings, load: float) -> int:
    """Returns the index of the nearest load."""
    return int(np.abs(np.array(settings.loads) - load).argmin())


def _compare(
    settings: Settings, curve: Curve, at: int, wanted: Number, its_error: Number = 0.0
) -> Finding:
    """Compares the error at a load's index: within 3 standard errors and 2%, since N is finite."""
    name = f"error at load {settings.loads[at]}, {curve.method}, {curve.length} N samples"
    error = np.hypot(curve.standard_error[at], its_error)
    return near(name, curve.error[at], wanted, 0.02, error=error).finding()


def _rows(
    settings: Settings, curves: list[Curve], theory: dict[str, np.ndarray]
) -> list[tuple[object, ...]]:
    """Makes one row per method, length and load, with the method's theory if it has one."""
    rows: list[tuple[object, ...]] = []
    for curve in curves:
        wanted = theory.get(curve.method, np.full(len(settings.loads), np.nan))
        columns = (curve.error, curve.standard_error, wanted, curve.error - wanted, *curve[-2:])
        for load, *numbers in zip(settings.loads, *columns, strict=True):
            rows.append((curve.method, curve.length, load, *(f"{x:.6g}" for x in numbers)))
    return rows
