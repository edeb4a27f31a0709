"""Training on a finite set of samples with a noisy linear teacher, and the exact error after it."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, Key

from experiments.simulations.student import Inputs, Samples, Scalar, Student, Unit, activation, step
from jaxnorm import rectified_moments


class Outcome(NamedTuple):
    """What a trained student does.

    Attributes:
        training_error: the mean squared error on the training set, noise included.
        error: the mean squared error on fresh inputs against the teacher without its noise; a
            batch-normalized student normalizes with the statistics of the training set, which
            running averages estimate.
        population_error: the same with the statistics of fresh inputs.
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
    """SGD for every load and seed at once.

    A batch is drawn with replacement. The learning rate falls to 0 along a cosine. The student
    starts where one step on one batch takes a linear student from zero, with gamma = 1: in the
    span of the samples, as the theory has it.

    Args:
        keys: one a seed.
        samples: P, the size of the training set, for each load P / N.
        noise: S, the variance of the teacher's noise.
        learning_rate: eta per sample, at the beginning.
        decay: zeta of the loss mean (.)^2 + zeta gamma^2.
        steps: the number of batches, the same for all loads.
        unit: the student.
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
    of_x, of_noise = jax.random.split(key)
    x = jax.random.normal(of_x, (count, inputs)) / jnp.sqrt(inputs)
    return x, x.sum(1) + jnp.sqrt(noise) * jax.random.normal(of_noise, (count,))


def _outcome(unit: Unit, student: Student, x: Inputs, y: Samples, used: Array) -> Outcome:
    slope, bias = _normalized_by(unit, student, x, used)
    residual = y - activation(unit, slope * (x @ student.weight) + bias)
    training = jnp.square(residual).mean(where=used)
    length = jnp.linalg.norm(student.weight) / jnp.sqrt(student.weight.size)
    fresh = student.gamma / length if unit.method == "bn" else slope
    overlap = student.weight.mean()
    return Outcome(
        training,
        exact_error(unit, slope * length, slope * overlap, bias),
        exact_error(unit, fresh * length, fresh * overlap, jnp.zeros(())),
    )


def _normalized_by(
    unit: Unit, student: Student, x: Inputs, used: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The student as slope w'x + bias, with the training set's statistics."""
    if unit.method == "sgd":
        return jnp.ones(()), jnp.zeros(())
    if unit.method == "wn":
        return student.gamma * jnp.sqrt(x.shape[1]) / jnp.linalg.norm(student.weight), jnp.zeros(())
    h = x @ student.weight
    mean = h.mean(where=used)
    slope = student.gamma / h.std(where=used)
    return slope, -slope * mean if unit.subtract_mean else jnp.zeros(())


def exact_error(
    unit: Unit, length: Float[Array, ""], overlap: Float[Array, ""], bias: Float[Array, ""]
) -> Float[Array, ""]:
    """E (t - f(h + bias))^2, t ~ N(0, 1), h ~ N(0, length^2), E t h = overlap.

    By Stein's lemma E t relu(h + bias) is the overlap times the probability to be active.
    """
    if not unit.rectified:
        return 1 + jnp.square(length) + jnp.square(bias) - 2 * overlap
    mean, std = rectified_moments(length, bias)
    active = norm.cdf(bias / length)
    return 1 + jnp.square(mean) + jnp.square(std) - 2 * overlap * active
