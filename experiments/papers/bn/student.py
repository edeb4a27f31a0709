"""One unit and a step of SGD on it: plain, weight-normalized or batch-normalized.

Inputs are N(0, I / N). By the symmetry of their distribution the teacher may be any vector of the
length sqrt(N): it is the vector of ones.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Inputs = Float[Array, "samples inputs"]
Samples = Float[Array, " samples"]
#: A number, or an array inside of jit.
Scalar = float | Float[Array, ""]


class Unit(NamedTuple):
    """A kind of student (static under jit).

    Attributes:
        method: `sgd`, w'x; `wn`, sqrt(N) gamma w'x / ||w||; `bn`, gamma w'x / sigma_B, sigma_B the
            standard deviation of w'x over the batch, whose mean the paper does not subtract.
        rectified: if True, a ReLU follows.
    """

    method: Literal["sgd", "wn", "bn"]
    rectified: bool = False


class Student(NamedTuple):
    """Parameters of a student; plain SGD does not use gamma."""

    weight: Float[Array, " inputs"]
    gamma: Float[Array, ""]


def preactivation(unit: Unit, student: Student, x: Inputs) -> Samples:
    """Returns the student's pre-activation, normalized as in training."""
    h = x @ student.weight
    if unit.method == "sgd":
        return h
    if unit.method == "wn":
        return student.gamma * h * jnp.sqrt(x.shape[1]) / jnp.linalg.norm(student.weight)
    return student.gamma * h / h.std()


def activation(unit: Unit, h: Samples) -> Samples:
    return jax.nn.relu(h) if unit.rectified else h


def step(
    unit: Unit, student: Student, x: Inputs, y: Samples, rate: Scalar, decay: Scalar
) -> Student:
    """Takes a step of SGD on half the paper's loss, mean (.)^2 + zeta gamma^2, with Eq. 5's rates.

    The gradients of samples are summed, so a batch takes as many steps of size `rate` at once.
    Gamma's rate is rate / N, which lets it keep pace with the N weights.
    """

    def loss(student: Student) -> Float[Array, ""]:
        error = y - activation(unit, preactivation(unit, student, x))
        return (jnp.square(error).mean() + decay * jnp.square(student.gamma)) / 2

    slope = jax.grad(loss)(student)
    samples, inputs = x.shape
    return Student(
        student.weight - rate * samples * slope.weight,
        student.gamma - rate * (samples / inputs) * slope.gamma,
    )
