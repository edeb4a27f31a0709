"""Linearly constrained weights: the O(m) reflection against the dense basis."""

import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.bench.table import Measured
from experiments.bench.timing import counted, ratio, times_in_turn
from jaxnorm import LinearlyConstrained

FAN_INS = (64, 576, 1152, 2304, 4608)
UNITS = 512
COLUMNS = (
    *("fan_in", "pass", "dense_ms", "reflection_ms", "speedup", "speedup_low", "speedup_high"),
    *("gflops_ratio", "gbytes_ratio"),
)


def bench_lcw(flags: Any) -> Measured:
    """LCW of 512 units, forward and gradient: the reflection against the dense product B v."""
    rows = [row for fan_in in FAN_INS for row in _rows(fan_in, flags.repeats)]
    note = f"{UNITS} units; operations and bytes are the dense product's over the reflection's."
    return Measured(COLUMNS, rows, note)


def _rows(fan_in: int, repeats: int) -> list[tuple[Any, ...]]:
    """One row for the forward pass and one for kernel and gradient."""
    kernel, direction = jax.random.normal(jax.random.key(0), (2, fan_in, UNITS))
    coordinates = LinearlyConstrained.from_kernel(kernel, -2).coordinates
    # The free coordinates, and the basis as an argument: as a constant it takes minutes to compile.
    ways: dict[str, tuple[Callable[..., Array], tuple[Array, ...]]] = {
        "dense": (lambda v, basis: basis @ v, (coordinates[1:], dense_basis(fan_in))),
        "reflection": (lambda v: LinearlyConstrained(v, (-2,)).effective(), (coordinates,)),
    }
    rows = []
    for name in ("forward", "gradient"):
        compiled = {}
        for way, (function, given) in ways.items():
            forward = name == "forward"
            pass_ = function if forward else _with_gradient(function)
            arguments = given if forward else (*given, direction)
            compiled[way] = (jax.jit(pass_).lower(*arguments).compile(), arguments)
        rows.append((fan_in, name, *_compare(compiled, repeats)))
    return rows


def dense_basis(fan_in: int) -> Float[Array, "fan_in free"]:
    """The matrix B (m x (m-1)) that the reflection stands for."""
    identity = jnp.eye(fan_in)[1:]
    return jax.vmap(lambda v: LinearlyConstrained(v[:, None], (-2,)).effective()[:, 0])(identity).T


def _with_gradient(function: Callable[..., Array]) -> Callable[..., Any]:
    """The kernel and what its gradient is pulled back to, as a layer's step needs both.

    Of no scalar: to make one of a kernel takes longer than the reflection.
    """

    def both(coordinates: Array, *rest: Array) -> tuple[Array, Array]:
        *arguments, direction = rest
        kernel, pull_back = jax.vjp(lambda v: function(v, *arguments), coordinates)
        (gradient,) = pull_back(direction)
        return kernel, gradient

    return both


def _compare(compiled: dict[str, Any], repeats: int) -> tuple[float, ...]:
    subjects = {
        name: (lambda run=run, arguments=arguments: run(*arguments))
        for name, (run, arguments) in compiled.items()
    }
    times = times_in_turn(subjects, repeats)
    medians = (statistics.median(times[way]) for way in ("dense", "reflection"))
    dense, reflection = (counted(compiled[way][0]) for way in ("dense", "reflection"))
    counts = (ours / theirs for ours, theirs in zip(dense, reflection, strict=True))
    return *medians, *ratio(times["dense"], times["reflection"]), *counts
