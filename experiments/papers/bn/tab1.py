"""Table 1: fixed points and maximum learning rates of BN (as gamma decay), WN and SGD."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from matplotlib.figure import Figure
from scipy.optimize import brentq

from experiments.analysis.picture import COLOURS, new_figure
from experiments.papers.bn.student import Scalar, Student, Unit, activation, step
from experiments.papers.item import Context, Finding, Item, Preset, Report
from experiments.papers.measured import measured_report, near
from jaxnorm.theory.batch_norm import (
    OrderParameters,
    fixed_point,
    integrals,
    max_learning_rate,
    order_parameter_flow,
    solve_order_parameters,
)

#: gamma, R and L at the beginning; for plain SGD gamma is L.
START = (0.5, 0.1, 1.0)

#: The records of the order parameters per unit of time, which is N samples.
RECORDS = 10


class Settings(NamedTuple):
    """Settings of the simulations.

    Attributes:
        inputs: N.
        runs: the number of runs.
        decays: zeta of BN.
        learning_rate: eta; gamma's is eta / N.
        duration: the length in samples over N.
    """

    inputs: int
    runs: int
    decays: tuple[float, ...] = (0.015625, 0.1, 0.5)
    learning_rate: float = 0.5
    duration: int = 40


@partial(jax.jit, static_argnames=("settings", "unit"))
def simulate_online(
    settings: Settings, unit: Unit, decay: Scalar, key: Key[Array, ""]
) -> OrderParameters:
    """Runs SGD with one fresh sample per step; records the order parameters by (run, time).

    The teacher has the student's activation and no noise.

    Args:
        settings: the sizes and the learning rate.
        unit: the student, `sgd` or `wn`; one sample has no batch statistics.
        decay: zeta.
        key: the key that the runs' keys are split from.
    """
    inputs, every = settings.inputs, settings.inputs // RECORDS

    def one_step(student: Student, key: Key[Array, ""]) -> tuple[Student, None]:
        x = jax.random.normal(key, (1, inputs)) / jnp.sqrt(inputs)
        y = activation(unit, x.sum(1))
        return step(unit, student, x, y, settings.learning_rate, decay), None

    def record(student: Student, key: Key[Array, ""]) -> tuple[Student, OrderParameters]:
        student, _ = jax.lax.scan(one_step, student, jax.random.split(key, every))
        return student, order_parameters(student)

    def one_run(key: Key[Array, ""]) -> OrderParameters:
        student_key, steps_key = jax.random.split(key)
        student = student_at(student_key, OrderParameters(*map(jnp.asarray, START)), inputs)
        steps = jax.random.split(steps_key, RECORDS * settings.duration)
        return jax.lax.scan(record, student, steps)[1]

    return jax.vmap(one_run)(jax.random.split(key, settings.runs))


def student_at(key: Key[Array, ""], state: OrderParameters, inputs: int) -> Student:
    """Draws a student with exactly the given order parameters."""
    aside = jax.random.normal(key, (inputs,))
    aside -= aside.mean()
    aside *= jnp.sqrt(inputs) / jnp.linalg.norm(aside)
    weight = state.L * (state.R + jnp.sqrt(1 - jnp.square(state.R)) * aside)
    return Student(weight, jnp.asarray(state.gamma))


def order_parameters(student: Student) -> OrderParameters:
    length = jnp.linalg.norm(student.weight) / jnp.sqrt(student.weight.size)
    return OrderParameters(student.gamma, student.weight.mean() / length, length)


def run(settings: Settings, context: Context) -> Report:
    """Compares simulated ends with fixed points, and stability limits from the flow's Jacobian."""
    kinds = [("sgd", 0.0), ("wn", 0.0), *(("bn", decay) for decay in settings.decays)]
    findings, paths = [], {}
    for index, (kind, decay) in enumerate(kinds):
        unit = Unit("sgd" if kind == "sgd" else "wn", rectified=True)
        path = paths[kind, decay] = simulate_online(settings, unit, decay, jax.random.key(0))
        findings += _compare(kind, decay, path)
        context.advance((index + 1) / len(kinds), kind)
    return measured_report(findings, {"tab1": _draw(settings, paths)})


def _compare(kind: str, decay: float, path: OrderParameters) -> list[Finding]:
    """Compares the ends of the runs, and the maximum learning rate, with the theory's."""
    name = kind + (f", zeta = {decay:.3g}" if kind == "bn" else "")
    gamma, cosine, _ = map(float, fixed_point(kind, decay))
    ends = {"gamma": (path.L if kind == "sgd" else path.gamma, gamma), "R": (path.R, cosine)}
    findings = []
    for quantity, (values, theory) in ends.items():
        last = np.asarray(values[:, -1], np.float64)
        error = last.std(ddof=1) / np.sqrt(len(last))
        findings.append(near(f"{quantity}, {name}", last.mean(), theory, 0.02, error=error))
    limit = max_learning_rate(kind, decay)
    return [*findings, near(f"max_learning_rate, {name}", _critical(kind, decay), limit, 0.02)]


def _critical(kind: str, decay: float) -> float:
    """Returns the effective learning rate at which R = 1 becomes unstable."""
    gamma, cosine, _ = fixed_point(kind, decay)

    def rate_of_cosine(cosine: jax.Array, effective: float) -> jax.Array:
        if kind == "sgd":  # R' of w += eta delta x, at length 1.
            i1, i2, i3 = integrals(1.0, cosine)
            return effective * (i3 - cosine * i1) - jnp.square(effective) * cosine * i2 / 2
        return order_parameter_flow((gamma, cosine, 1.0), effective / gamma, decay).R

    slope = jax.jit(jax.grad(rate_of_cosine))
    return float(brentq(lambda effective: float(slope(cosine, effective)), 0.5, 20.0, xtol=1e-5))


def _draw(settings: Settings, paths: dict[tuple[str, float], OrderParameters]) -> Figure:
    """Draws R and gamma over time: the simulated mean, and the solution of the flow."""
    figure = new_figure(2)
    times = jnp.arange(1, RECORDS * settings.duration + 1) / RECORDS
    for index, ((kind, decay), path) in enumerate(paths.items()):
        name = kind + (f", ζ = {decay:.3g}" if kind == "bn" else "")
        measured = (path.R, path.L if kind == "sgd" else path.gamma)
        for axes, values in zip(figure.axes, measured, strict=True):
            axes.plot(times, values.mean(0), color=COLOURS[index], label=name)
        if kind != "sgd":
            flow = solve_order_parameters(START, times, settings.learning_rate, decay)
            for axes, values in zip(figure.axes, (flow.R, flow.gamma), strict=True):
                axes.plot(times, values, ":", color="black", linewidth=1.2)
    for axes, name in zip(figure.axes, ("R", "gamma (SGD: L)"), strict=True):
        axes.set(xlabel="samples / N", ylabel=name)
    figure.axes[0].legend(frameon=False)
    figure.axes[1].set_title("lines: simulation; dots: the flow", fontsize=10)
    return figure


TAB1 = Item(
    "bn/tab1",
    "fixed points and maximum learning rates of BN, WN and SGD",
    "(1/(2 zeta + 1), 1, any), (1, 1, any), (1, 1, 1); BN's rate exceeds 2 by at least 2 zeta",
    run,
    smoke=Preset(
        Settings(inputs=50, runs=4, decays=(0.1,), duration=4),
        "30 s on 2 CPU cores",
        "N = 50, stopped early",
    ),
    cpu=Preset(Settings(inputs=200, runs=16), "2 min on 2 CPU cores", "N = 200"),
    full=Preset(Settings(inputs=2000, runs=64, duration=100), "30 min on a GPU (estimated)"),
)
