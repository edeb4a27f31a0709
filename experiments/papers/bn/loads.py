"""Generalization errors of trained units over the load."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from experiments.analysis.picture import colour_of
from experiments.papers.item import Context
from experiments.simulations.finite import simulate_training
from experiments.simulations.student import Unit

#: The variance of the teacher's noise.
NOISE = 0.25


class Settings(NamedTuple):
    """Settings of the trainings; the paper gives only `inputs` (4096) and the batch size.

    Attributes:
        inputs: N.
        loads: the loads P / N.
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


class Curve(NamedTuple):
    """Means over seeds by load, of one method after one length of training."""

    method: str
    length: int
    error: np.ndarray
    standard_error: np.ndarray
    training: np.ndarray
    population: np.ndarray


def train_all(settings: Settings, rectified: bool, decay: float, context: Context) -> list[Curve]:
    """Trains SGD and WN + gamma decay to the longest length, and BN to every length."""
    longest = max(settings.lengths)
    jobs = [
        ("sgd", Unit("sgd", rectified), 0.0, longest),
        ("wn+gamma-decay", Unit("wn", rectified), decay, longest),
        *(("bn", Unit("bn", rectified), 0.0, length) for length in settings.lengths),
    ]
    total = sum(length for *_, length in jobs)
    curves, done = [], 0
    for name, unit, strength, length in jobs:
        curves.append(_train(settings, name, unit, strength, length))
        done += length
        context.advance(done / total, f"{name}, {length} N samples")
    return curves


def _train(settings: Settings, name: str, unit: Unit, decay: float, length: int) -> Curve:
    samples = np.rint(np.array(settings.loads) * settings.inputs).astype(np.int32)
    outcome = simulate_training(
        jax.random.split(jax.random.key(0), settings.seeds),
        jnp.asarray(samples),
        NOISE,
        settings.learning_rate,
        decay,
        length * settings.inputs // settings.batch_size,
        unit=unit,
        inputs=settings.inputs,
        most_samples=int(samples.max()),
        batch_size=settings.batch_size,
    )
    error = np.asarray(outcome.error, np.float64)
    spread = error.std(1, ddof=1) / np.sqrt(settings.seeds)
    others = (outcome.training_error, outcome.population_error)
    return Curve(name, length, error.mean(1), spread, *(np.asarray(x).mean(1) for x in others))


def draw_points(
    axes: Axes,
    settings: Settings,
    curves: Sequence[Curve],
    student: str,
    ylim: tuple[float, float],
) -> None:
    """Draws every simulated method as points with standard errors, labels and the legend."""
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
    axes.set(ylim=ylim, xlabel="load P / N", ylabel="generalization error")
    axes.set_title(f"{student} student, M = {settings.batch_size}, noise {NOISE}")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, frameon=False)
