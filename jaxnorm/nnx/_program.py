"""A function as one flat list of primitives, with every wrapping call inlined."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxnorm._kernel_calls import LOOPS, inner_jaxpr, is_flag


class Equation(NamedTuple):
    """One primitive; its variables are numbers, unique in the whole program.

    ``keeps_last_axis``: whether its first input and its first output have a last axis of one size.
    """

    name: str
    inputs: list[int]
    outputs: list[int]
    keeps_last_axis: bool


class Program(NamedTuple):
    """A traced function: its equations in execution order, and its inputs' and outputs' numbers."""

    equations: list[Equation]
    inputs: list[int]
    outputs: list[int]


def trace(function: Callable[..., Any], *arguments: Any, keep: str) -> Program:
    """The primitives of ``function(*arguments)``.

    A jitted function whose name starts with ``keep`` stays one equation of that name. A loop or a
    branch stays one equation too; its body's equations stand before it, on variables of their own.
    """
    flags = [i for i, x in enumerate(arguments) if is_flag(x)]
    closed = jax.make_jaxpr(function, static_argnums=flags)(*arguments)
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
        if inner is not None and equation.primitive.name not in LOOPS:
            results = _flatten(inner, operands, numbers, keep, equations)
        else:
            if not name.startswith(keep):
                for body in _bodies(equation):
                    _flatten(
                        body, [next(numbers) for _ in body.jaxpr.invars], numbers, keep, equations
                    )
            results = [next(numbers) for _ in equation.outvars]
            kept = name if name.startswith(keep) else equation.primitive.name
            equations.append(Equation(kept, operands, results, _keeps_last_axis(equation)))
        env.update(zip(equation.outvars, results, strict=True))
    return [number(atom) for atom in jaxpr.outvars]


def _bodies(equation: Any) -> Iterator[ClosedJaxpr]:
    """Every jaxpr among an equation's parameters."""
    for value in equation.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(one, ClosedJaxpr):
                yield one
            elif isinstance(one, Jaxpr) and not one.constvars:
                yield ClosedJaxpr(one, [])


def _keeps_last_axis(equation: Any) -> bool:
    shapes = [atom.aval.shape for atom in (*equation.invars[:1], *equation.outvars[:1])]
    return len(shapes) == 2 and shapes[0][-1:] == shapes[1][-1:] != ()
