"""Online learning with a fresh sample per step, and a record of the order parameters."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from experiments.simulations.student import Scalar, Student, Unit, activation, step
from jaxnorm.theory.batch_norm import OrderParameters


@partial(jax.jit, static_argnames=("unit", "runs", "inputs", "steps", "every"))
def simulate_online(
    key: Key[Array, ""],
    start: OrderParameters,
    learning_rate: Scalar,
    decay: Scalar = 0.0,
    *,
    unit: Unit,
    runs: int,
    inputs: int,
    steps: int,
    every: int,
) -> OrderParameters:
    """Runs SGD with one fresh sample per step, from given order parameters.

    The teacher has the student's activation and no noise.

    Args:
        key: the key that the runs' keys are split from.
        start: gamma, R and L at the beginning; for plain SGD gamma is L.
        learning_rate: eta; gamma's is eta / N.
        decay: zeta.
        unit: the student, `sgd` or `wn`; one sample has no batch statistics.
        runs: the number of runs, all at once.
        inputs: N.
        steps: the number of steps, with one sample each.
        every: the number of steps between two records of the order parameters.

    Returns:
        The order parameters with the axes (runs, steps // every).
    """

    def one_step(student: Student, key: Key[Array, ""]) -> tuple[Student, None]:
        x = jax.random.normal(key, (1, inputs)) / jnp.sqrt(inputs)
        y = activation(unit, x.sum(1))
        return step(unit, student, x, y, jnp.asarray(learning_rate), jnp.asarray(decay)), None

    def record(student: Student, key: Key[Array, ""]) -> tuple[Student, OrderParameters]:
        student, _ = jax.lax.scan(one_step, student, jax.random.split(key, every))
        return student, order_parameters(student)

    def one_run(key: Key[Array, ""]) -> OrderParameters:
        student_key, steps_key = jax.random.split(key)
        student = student_at(student_key, start, inputs)
        return jax.lax.scan(record, student, jax.random.split(steps_key, steps // every))[1]

    return jax.vmap(one_run)(jax.random.split(key, runs))


def student_at(key: Key[Array, ""], state: OrderParameters, inputs: int) -> Student:
    """Draws a student with exactly the given order parameters."""
    aside = jax.random.normal(key, (inputs,))
    aside -= aside.mean()
    aside *= jnp.sqrt(inputs) / jnp.linalg.norm(aside)
    return Student(
        state.L * (state.R + jnp.sqrt(1 - jnp.square(state.R)) * aside), jnp.asarray(state.gamma)
    )


def order_parameters(student: Student) -> OrderParameters:
    length = jnp.linalg.norm(student.weight) / jnp.sqrt(student.weight.size)
    return OrderParameters(student.gamma, student.weight.mean() / length, length)
