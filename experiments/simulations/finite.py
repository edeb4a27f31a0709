"""Training on finitely many samples of a noisy linear teacher, and the exact error after it."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from experiments.simulations.student import Inputs, Samples, Scalar, Student, Unit, activation, step


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
