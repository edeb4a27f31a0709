"""Independent oracles: the mathematics of the papers in float64 NumPy, unit by unit.

Units are the rows of a matrix; the projector is the explicit matrix I - 11'/m.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
#: ``(weights, gradient) -> step``; the state of the method is inside.
Optimizer = Callable[[Array, Array], Array]


def rows(weights: Any, fan_in_axes: tuple[int, ...]) -> Array:
    """The weights as a float64 matrix with one row per unit."""
    array = np.asarray(weights, np.float64)
    moved = np.moveaxis(array, fan_in_axes, range(-len(fan_in_axes), 0))
    units = moved.shape[: moved.ndim - len(fan_in_axes)]
    return moved.reshape(int(np.prod(units)), -1)


def from_rows(matrix: Array, like: Any, fan_in_axes: tuple[int, ...]) -> Array:
    """The inverse of `rows`."""
    unit_axes = [axis for axis in range(-like.ndim, 0) if axis not in fan_in_axes]
    sizes = [like.shape[axis] for axis in (*unit_axes, *fan_in_axes)]
    return np.moveaxis(matrix.reshape(sizes), range(-len(fan_in_axes), 0), fan_in_axes)


def projected(
    weights: Any, fan_in_axes: tuple[int, ...], squared_radius: Any, centered: bool
) -> Array:
    """The nearest point of the sphere; ``squared_radius`` is one number, or one per unit."""
    matrix = rows(weights, fan_in_axes)
    size = matrix.shape[1]
    projector = np.eye(size) - np.ones((size, size)) / size if centered else np.eye(size)
    flat = matrix @ projector
    lengths = np.sqrt(np.einsum("um,um->u", flat, flat))
    return from_rows((np.sqrt(squared_radius) / lengths)[:, None] * flat, weights, fan_in_axes)


def sums_and_squared_norms(weights: Any, fan_in_axes: tuple[int, ...]) -> tuple[Array, Array]:
    """1'w and ||w||^2 per unit."""
    matrix = rows(weights, fan_in_axes)
    return matrix.sum(1), (matrix**2).sum(1)


def sgd(learning_rate: float, momentum: float = 0.0) -> Optimizer:
    velocity: Any = 0.0

    def step(weights: Array, gradient: Array) -> Array:
        nonlocal velocity
        velocity = momentum * velocity + gradient
        return -learning_rate * velocity

    return step


def adam(learning_rate: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    first: Any = 0.0
    second: Any = 0.0
    count = 0

    def step(weights: Array, gradient: Array) -> Array:
        nonlocal first, second, count
        count += 1
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        unbiased = first / (1 - b1**count), second / (1 - b2**count)
        return -learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + eps)

    return step


def constrained_run(
    weights: Array,
    gradients: Array,
    optimizer: Optimizer,
    fan_in_axes: tuple[int, ...],
    squared_radius: float,
) -> Iterator[Array]:
    """The weights after each step of ``optimizer`` and the projection onto the centered sphere."""
    for gradient in gradients:
        moved = weights + optimizer(weights, gradient)
        weights = projected(moved, fan_in_axes, squared_radius, centered=True)
        yield weights


def slopes(function: Callable[[Array], Any], at: Array) -> Array:
    """Gradient of a scalar function by central differences in float64.

    The step h = 1e-5 has a truncation error of h^2 = 1e-10 and a cancellation error of
    1e-16 / h = 1e-11, for values and third derivatives of order one to a hundred.
    """
    result = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = 1e-5
        result[index] = (function(at + step) - function(at - step)) / 2e-5
    return result
