"""One unit and a step of SGD on it: plain, weight-normalized or batch-normalized.

Inputs are N(0, I / N). By the symmetry of their distribution the teacher may be any vector of the
length sqrt(N): it is the vector of ones.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Method = Literal["sgd", "wn", "bn"]
Inputs = Float[Array, "samples inputs"]
Samples = Float[Array, " samples"]
#: A number; inside of jit it is an array.
Scalar = float | Float[Array, ""]


class Unit(NamedTuple):
    """What kind of student is trained (static under jit).

    Attributes:
        method: `sgd`, w'x; `wn`, sqrt(N) gamma w'x / ||w||; `bn`, gamma w'x / sigma_B, sigma_B the
            standard deviation of w'x over the batch, whose mean the paper does not subtract.
        rectified: whether a ReLU follows.
    """

    method: Method
    rectified: bool = False


class Student(NamedTuple):
    """The parameters; plain SGD has no gamma and leaves it alone."""

    weight: Float[Array, " inputs"]
    gamma: Float[Array, ""]


def preactivation(unit: Unit, student: Student, x: Inputs) -> Samples:
    """The student before its activation, normalized as in training."""
    h = x @ student.weight
    if unit.method == "sgd":
        return h
    if unit.method == "wn":
        return student.gamma * h * jnp.sqrt(x.shape[1]) / jnp.linalg.norm(student.weight)
    return student.gamma * h / h.std()


def activation(unit: Unit, h: Samples) -> Samples:
    return jax.nn.relu(h) if unit.rectified else h


def step(
    unit: Unit,
    student: Student,
    x: Inputs,
    y: Samples,
    rate: Float[Array, ""],
    decay: Float[Array, ""],
) -> Student:
    """SGD on half the paper's loss, mean (.)^2 + zeta gamma^2, with Eq. 5's rates per sample.

    Samples' gradients are summed: a batch takes as many steps of the size `rate` at once. That of
    gamma is rate / N, which lets it keep pace with the N weights.
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
