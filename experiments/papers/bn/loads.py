"""Training on finitely many samples of a noisy linear teacher: generalization errors over loads."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from matplotlib.axes import Axes

from experiments.analysis.picture import colour_of
from experiments.papers.bn.student import (
    Inputs,
    Samples,
    Scalar,
    Student,
    Unit,
    activation,
    step,
)
from experiments.papers.item import Context


class Outcome(NamedTuple):
    """Errors of a trained student.

    Attributes:
        training_error: the mean squared error on the training set, noise included.
        error: the mean squared error on fresh inputs against the teacher without its noise; a
            batch-normalized student normalizes with the statistics of the training set, which
            running averages estimate.
        population_error: that error, normalized with the statistics of fresh inputs.
    """

    training_error: Float[Array, "..."]
    error: Float[Array, "..."]
    population_error: Float[Array, "..."]


@partial(jax.jit, static_argnames=("unit", "inputs", "most_samples", "batch_size"))
def simulate_training(
    keys: Key[Array, " seeds"],
    samples: Int[Array, " loads"],
    noise: Scalar,
    learning_rate: Scalar,
    decay: Scalar,
    steps: int | Int[Array, ""],
    *,
    unit: Unit,
    inputs: int,
    most_samples: int,
    batch_size: int,
) -> Outcome:
    """Trains by SGD for every load and seed at once.

    Batches are drawn with replacement. The learning rate falls to 0 along a cosine. The student
    starts with gamma = 1 and the weights that one step on one batch gives a linear student from
    zero: in the span of the samples, as in the theory.

    Args:
        keys: one key per seed.
        samples: P, the size of the training set, for each load P / N.
        noise: S, the variance of the teacher's noise.
        learning_rate: eta per sample, at the beginning.
        decay: zeta of the loss mean (.)^2 + zeta gamma^2.
        steps: the number of batches, the same for all loads.
        unit: the kind of student.
        inputs: N.
        most_samples: the largest P, to which all training sets are padded.
        batch_size: M.

    Returns:
        The outcomes with the axes (loads, seeds).
    """

    def one_run(count: Int[Array, ""], key: Key[Array, ""]) -> Outcome:
        data, order = jax.random.split(key)
        x, y = _problem(data, noise, inputs, most_samples)

        def batch(at: Int[Array, ""]) -> tuple[Inputs, Samples]:
            rows = jax.random.randint(jax.random.fold_in(order, at), (batch_size,), 0, count)
            return x[rows], y[rows]

        def body(at: Int[Array, ""], student: Student) -> Student:
            rate = learning_rate * (1 + jnp.cos(jnp.pi * at / steps)) / 2
            return step(unit, student, *batch(at), rate, jnp.asarray(decay))

        x0, y0 = batch(jnp.asarray(-1))
        start = Student(learning_rate * y0 @ x0, jnp.ones(()))
        student = jax.lax.fori_loop(0, steps, body, start)
        return _outcome(unit, student, x, y, jnp.arange(most_samples) < count)

    over_seeds = jax.vmap(one_run, (None, 0))
    return jax.vmap(over_seeds, (0, None))(samples, keys)


def _problem(key: Key[Array, ""], noise: Scalar, inputs: int, count: int) -> tuple[Inputs, Samples]:
    input_key, noise_key = jax.random.split(key)
    x = jax.random.normal(input_key, (count, inputs)) / jnp.sqrt(inputs)
    return x, x.sum(1) + jnp.sqrt(noise) * jax.random.normal(noise_key, (count,))


def _outcome(unit: Unit, student: Student, x: Inputs, y: Samples, used: Array) -> Outcome:
    slope = _slope(unit, student, x, used)
    residual = y - activation(unit, slope * (x @ student.weight))
    training = jnp.square(residual).mean(where=used)
    length = jnp.linalg.norm(student.weight) / jnp.sqrt(student.weight.size)
    fresh = student.gamma / length if unit.method == "bn" else slope
    overlap = student.weight.mean()
    return Outcome(
        training,
        exact_error(unit, slope * length, slope * overlap),
        exact_error(unit, fresh * length, fresh * overlap),
    )


def _slope(unit: Unit, student: Student, x: Inputs, used: Array) -> Float[Array, ""]:
    """Returns the slope of the student slope w'x, with the training set's statistics."""
    if unit.method == "sgd":
        return jnp.ones(())
    if unit.method == "wn":
        return student.gamma * jnp.sqrt(x.shape[1]) / jnp.linalg.norm(student.weight)
    return student.gamma / (x @ student.weight).std(where=used)


def exact_error(
    unit: Unit, length: Float[Array, ""], overlap: Float[Array, ""]
) -> Float[Array, ""]:
    """Returns E (t - f(h))^2 for t ~ N(0, 1), h ~ N(0, length^2), E t h = overlap.

    A rectifier keeps half of E h^2, and by symmetry half of E t h.
    """
    kept = 0.5 if unit.rectified else 1.0
    return 1 + kept * (jnp.square(length) - 2 * overlap)


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
