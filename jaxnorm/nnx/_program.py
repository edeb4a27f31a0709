"""A function as one flat list of primitives, with every wrapping call inlined."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal

from jaxnorm._kernel_calls import inner_jaxpr


class Equation(NamedTuple):
    """One primitive; its variables are numbers, unique in the whole program."""

    name: str
    inputs: list[int]
    outputs: list[int]


class Program(NamedTuple):
    """A traced function: its equations in execution order, and its inputs' and outputs' numbers."""

    equations: list[Equation]
    inputs: list[int]
    outputs: list[int]


def trace(function: Callable[..., Any], *arguments: Any, keep: str) -> Program:
    """The primitives of ``function(*arguments)``.

    A jitted function whose name starts with ``keep`` stays one equation of that name.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    numbers = itertools.count()
    inputs = [next(numbers) for _ in closed.jaxpr.invars]
    equations: list[Equation] = []
    outputs = _flatten(closed, inputs, numbers, keep, equations)
    return Program(equations, inputs, outputs)


def _flatten(
    closed: ClosedJaxpr,
    inputs: list[int],
    numbers: Iterator[int],
    keep: str,
    equations: list[Equation],
) -> list[int]:
    jaxpr = closed.jaxpr
    env = dict(zip(jaxpr.invars, inputs, strict=True))

    def number(atom: Any) -> int:
        return next(numbers) if isinstance(atom, Literal) else env.setdefault(atom, next(numbers))

    for equation in jaxpr.eqns:
        operands = [number(atom) for atom in equation.invars]
        name = str(equation.params.get("name", ""))
        inner = None if name.startswith(keep) else inner_jaxpr(equation)
        if inner is None:
            results = [next(numbers) for _ in equation.outvars]
            kept = name if name.startswith(keep) else equation.primitive.name
            equations.append(Equation(kept, operands, results))
        else:
            results = _flatten(inner, operands, numbers, keep, equations)
        env.update(zip(equation.outvars, results, strict=True))
    return [number(atom) for atom in jaxpr.outvars]
