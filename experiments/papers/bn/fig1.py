"""Figures 1a and 1b: generalization error against the load, of a linear and of a ReLU student.

The students are trained on finitely many samples of a noisy linear teacher.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from matplotlib.axes import Axes

from experiments.analysis.picture import COLOURS, colour_of, new_figure
from experiments.papers.bn.student import Inputs, Samples, Scalar, Student, Unit, activation, step
from experiments.papers.item import Context, Finding, Item, Preset, Report
from experiments.papers.measured import Number, near
from jaxnorm.theory.batch_norm import generalization_error

#: The variance of the teacher's noise.
NOISE = 0.25

#: The load of the findings, where the curves are far apart; then a load at which SGD with a ReLU is
#: near its divergence at 2.
READ_AT, HIGH_LOAD = 0.9, 1.7

COLUMNS = (
    *("method", "length", "load", "error", "standard_error", "theory", "difference"),
    *("training_error", "error_with_population_statistics"),
)


class Settings(NamedTuple):
    """Settings of the trainings; the paper gives only `inputs` (4096) and the batch size.

    Attributes:
        inputs: N.
        loads: the loads P / N, of training sets of P samples.
        seeds: the number of runs per load.
        lengths: lengths of BN's training, in samples over N; other methods take the longest.
        batch_size: M.
        learning_rate: eta per sample, at the beginning of the cosine.
    """

    inputs: int
    loads: tuple[float, ...]
    seeds: int
    lengths: tuple[int, ...]
    batch_size: int
    learning_rate: float = 1.0


class Outcome(NamedTuple):
    """Errors of a trained student.

    Attributes:
        error: the mean squared error on fresh inputs against the teacher without its noise; a
            batch-normalized student normalizes with the statistics of the training set, which
            running averages estimate.
        training_error: the mean squared error on the training set, noise included.
        population_error: the error, normalized with the statistics of fresh inputs.
    """

    error: Float[Array, "..."]
    training_error: Float[Array, "..."]
    population_error: Float[Array, "..."]


@partial(jax.jit, static_argnames=("settings", "unit"))
def simulate_training(
    settings: Settings, unit: Unit, decay: Scalar, steps: int | Int[Array, ""]
) -> Outcome:
    """Trains by SGD for every load and seed at once; the axes are (loads, seeds).

    Batches are drawn with replacement. The learning rate falls to 0 along a cosine. The student
    starts with gamma = 1 and the weights that one step on one batch gives a linear student from
    zero: in the span of the samples, as in the theory.

    Args:
        settings: the sizes and the learning rate.
        unit: the kind of student.
        decay: zeta of the loss mean (.)^2 + zeta gamma^2.
        steps: the number of batches, the same for all loads.
    """
    inputs, rate = settings.inputs, settings.learning_rate
    samples = np.rint(np.array(settings.loads) * inputs).astype(np.int32)
    most = int(samples.max())  # All training sets are padded to the largest.

    def one_run(count: Int[Array, ""], key: Key[Array, ""]) -> Outcome:
        data, order = jax.random.split(key)
        x_key, noise_key = jax.random.split(data)
        x = jax.random.normal(x_key, (most, inputs)) / jnp.sqrt(inputs)
        y = x.sum(1) + NOISE**0.5 * jax.random.normal(noise_key, (most,))

        def batch(at: Int[Array, ""]) -> tuple[Inputs, Samples]:
            drawn = jax.random.fold_in(order, at)
            rows = jax.random.randint(drawn, (settings.batch_size,), 0, count)
            return x[rows], y[rows]

        def body(at: Int[Array, ""], student: Student) -> Student:
            falling = rate * (1 + jnp.cos(jnp.pi * at / steps)) / 2
            return step(unit, student, *batch(at), falling, decay)

        x0, y0 = batch(jnp.asarray(-1))
        student = jax.lax.fori_loop(0, steps, body, Student(rate * y0 @ x0, jnp.ones(())))
        return _outcome(unit, student, x, y, jnp.arange(most) < count)

    keys = jax.random.split(jax.random.key(0), settings.seeds)
    return jax.vmap(jax.vmap(one_run, (None, 0)), (0, None))(jnp.asarray(samples), keys)


def _outcome(unit: Unit, student: Student, x: Inputs, y: Samples, used: Array) -> Outcome:
    h = x @ student.weight
    length = jnp.linalg.norm(student.weight) / jnp.sqrt(student.weight.size)
    # The slope of the student slope w'x: with the statistics of the training set, and of all x.
    fresh = jnp.ones(()) if unit.method == "sgd" else student.gamma / length
    slope = student.gamma / h.std(where=used) if unit.method == "bn" else fresh
    residual = y - activation(unit, slope * h)
    overlap = student.weight.mean()
    return Outcome(
        exact_error(unit, slope * length, slope * overlap),
        jnp.square(residual).mean(where=used),
        exact_error(unit, fresh * length, fresh * overlap),
    )


def exact_error(
    unit: Unit, length: Float[Array, ""], overlap: Float[Array, ""]
) -> Float[Array, ""]:
    """Returns E (t - f(h))^2 for t ~ N(0, 1), h ~ N(0, length^2), E t h = overlap.

    A rectifier keeps half of E h^2, and by symmetry half of E t h.
    """
    kept = 0.5 if unit.rectified else 1.0
    return 1 + kept * (jnp.square(length) - 2 * overlap)


class Curve(NamedTuple):
    """Means over seeds by load, of one method after one length of training."""

    method: str
    length: int
    error: np.ndarray
    standard_error: np.ndarray
    training_error: np.ndarray
    population_error: np.ndarray


#: The theory's error of each method by load, and the findings.
Judged = tuple[dict[str, np.ndarray], list[Finding]]


def run(rectified: bool, settings: Settings, context: Context) -> Report:
    """Trains every method at every load, and compares the errors with the closed forms."""
    decay = 1 / ((4 if rectified else 2) * settings.batch_size)
    curves = _train(settings, rectified, decay, context)
    figure = new_figure(width=10, height=5)
    if rectified:
        theory, findings = _judge_relu(settings, curves, figure.axes[0])
    else:
        theory, findings = _judge_linear(settings, curves, figure.axes[0], decay)
    _draw(figure.axes[0], settings, curves)
    title = f"{'ReLU' if rectified else 'Linear'} student, M = {settings.batch_size}"
    figure.axes[0].set(ylim=(0.4, 2) if rectified else (0, 3), title=f"{title}, noise {NOISE}")
    rows = [row for curve in curves for row in _rows(settings, curve, theory.get(curve.method))]
    return Report(findings, COLUMNS, rows, {"fig1b" if rectified else "fig1a": figure})


def _train(settings: Settings, rectified: bool, decay: float, context: Context) -> list[Curve]:
    """Trains SGD and WN + gamma decay to the longest length, and BN to every length."""
    longest = max(settings.lengths)
    jobs = [
        ("sgd", Unit("sgd", rectified), 0.0, longest),
        ("wn+gamma-decay", Unit("wn", rectified), decay, longest),
        *(("bn", Unit("bn", rectified), 0.0, length) for length in settings.lengths),
    ]
    curves: list[Curve] = []
    for name, unit, strength, length in jobs:
        steps = length * settings.inputs // settings.batch_size
        outcome = simulate_training(settings, unit, strength, steps)
        errors = np.asarray(outcome.error, np.float64)
        spread = errors.std(1, ddof=1) / np.sqrt(settings.seeds)
        others = (np.asarray(each).mean(1) for each in outcome[1:])
        curves.append(Curve(name, length, errors.mean(1), spread, *others))
        context.advance(len(curves) / len(jobs), f"{name}, {length} N samples")
    return curves


def _judge_linear(settings: Settings, curves: list[Curve], axes: Axes, decay: float) -> Judged:
    """Draws the closed forms of the linear student, and compares at one load."""
    dense, loads = np.linspace(0.02, max(settings.loads), 400), np.array(settings.loads)
    axes.plot(dense, _error("sgd_linear", dense), color=COLOURS[0], label="SGD, theory")
    for z, style, color, label in (
        (dense * decay, "-", COLOURS[1], "z = load/(2M)"),
        (decay, "--", COLOURS[1], "z = 1/(2M)"),
        (0.25, "-.", "0.5", "z = 0.25"),
    ):
        ridge = _error("wn_linear", dense, NOISE, z)
        axes.plot(dense, ridge, style, color=color, label=f"WN + decay, {label}")
    with np.errstate(all="ignore"):
        ridge = _error("wn_linear", loads, NOISE, loads * decay)
    theory = {"sgd": _error("sgd_linear", loads), "wn+gamma-decay": ridge, "bn": ridge}
    read, last = _nearest(settings, READ_AT), curves[-1]
    training = Finding(
        f"training error at load {settings.loads[read]}, bn, {last.length} N samples",
        f"{last.training_error[read]:.2g}",
        f"{curves[1].training_error[read]:.2g} (WN + gamma decay)",
    )
    compared = [_compare(settings, each, read, theory[each.method][read]) for each in curves]
    return theory, [*compared, training]


def _judge_relu(settings: Settings, curves: list[Curve], axes: Axes) -> Judged:
    """Draws the closed forms of SGD, and compares BN, which has none, with WN + gamma decay."""
    dense = np.linspace(0.02, min(max(settings.loads), 1.98), 400)
    loads = np.array(settings.loads)
    axes.plot(dense, _error("sgd_relu", dense), color=COLOURS[0], label="SGD, theory")
    quiet = _error("sgd_relu", dense, 0.0)
    axes.plot(dense, quiet, color="0.5", label="SGD, theory, no noise")
    sgd, decayed, *batch = curves
    theory = {"sgd": _error("sgd_relu", loads), "bn": decayed.error}
    read, high = (_nearest(settings, load) for load in (READ_AT, HIGH_LOAD))
    error, spread = decayed.error[read], decayed.standard_error[read]
    return theory, [
        *(_compare(settings, bn, read, error, spread) for bn in batch),
        *(_compare(settings, sgd, at, theory["sgd"][at]) for at in dict.fromkeys((read, high))),
    ]


def _error(
    kind: str, loads: np.ndarray, noise: float = NOISE, decay: np.ndarray | float = 0.0
) -> np.ndarray:
    return np.asarray(generalization_error(kind, loads, noise, decay))


def _nearest(settings: Settings, load: float) -> int:
    """Returns the index of the nearest load."""
    return int(np.abs(np.array(settings.loads) - load).argmin())


def _compare(
    settings: Settings, curve: Curve, at: int, wanted: Number, its_error: Number = 0.0
) -> Finding:
    """Compares the error at a load's index: within 3 standard errors and 2%, since N is finite."""
    name = f"error at load {settings.loads[at]}, {curve.method}, {curve.length} N samples"
    error = np.hypot(curve.standard_error[at], its_error)
    return near(name, curve.error[at], wanted, 0.02, error=error)


def _rows(settings: Settings, curve: Curve, theory: np.ndarray | None) -> list[tuple[object, ...]]:
    """Makes one row per load, with the method's theory if it has one."""
    wanted = np.full(len(settings.loads), np.nan) if theory is None else theory
    others = (curve.training_error, curve.population_error)
    columns = (curve.error, curve.standard_error, wanted, curve.error - wanted, *others)
    return [
        (curve.method, curve.length, load, *(f"{x:.6g}" for x in numbers))
        for load, *numbers in zip(settings.loads, *columns, strict=True)
    ]


def _draw(axes: Axes, settings: Settings, curves: list[Curve]) -> None:
    """Draws every method as points with standard errors; those of BN are joined."""
    markers = {"sgd": "o", "wn+gamma-decay": "^", "bn": "s"}
    for index, curve in enumerate(curves):
        joined = curve.method == "bn"
        axes.errorbar(
            settings.loads,
            curve.error,
            curve.standard_error,
            label=f"{curve.method}, {curve.length} N samples",
            color=colour_of(index),
            marker=markers[curve.method],
            linestyle=":" if joined else "none",
            linewidth=1,
            markersize=4 if joined else 6,
            zorder=2 if joined else 3,
        )
    axes.set(xlabel="load P / N", ylabel="generalization error")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, frameon=False)


SMOKE = Settings(inputs=32, loads=(0.5, 0.9), seeds=2, lengths=(4, 8), batch_size=8)
CPU = Settings(256, (), seeds=6, lengths=(30, 100, 300, 1000), batch_size=32)
FULL = Settings(4096, (), seeds=4, lengths=(30, 100, 300, 1000, 3000), batch_size=32)


def errors_by_load(
    name: str,
    title: str,
    reported: str,
    rectified: bool,
    loads: tuple[float, ...],
    highest: float,
    batch_size: int,
) -> Item:
    """Makes the item of a student: some loads in cpu, and in full every tenth up to the highest."""
    cpu = CPU._replace(loads=loads, batch_size=batch_size)
    tenths = tuple(n / 10 for n in range(1, round(10 * highest) + 1))
    full = FULL._replace(loads=tenths, batch_size=batch_size)
    return Item(
        name,
        title,
        reported,
        partial(run, rectified),
        smoke=Preset(SMOKE, "20 s on 2 CPU cores", "N = 32, M = 8"),
        cpu=Preset(cpu, "2 min on 2 CPU cores", "N = 256 for the paper's 4096; 6 runs a load"),
        full=Preset(full, "hours on a GPU with 32 GB (estimated)"),
    )


FIG1A = errors_by_load(
    "bn/fig1a",
    "generalization error against load, linear student, M = 32",
    "BN lies on the curve of WN + gamma decay with zeta = 1/(2M)",
    rectified=False,
    loads=(0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0),
    highest=2.0,
    batch_size=32,
)

FIG1B = errors_by_load(
    "bn/fig1b",
    "generalization error against load, ReLU student, M = 16",
    "BN corresponds to WN + gamma decay with zeta = 1/(4M); SGD diverges at load 2",
    rectified=True,
    loads=(0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.9, 2.1),
    highest=2.1,
    batch_size=16,
)
