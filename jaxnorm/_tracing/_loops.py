"""Loops and branches: their bodies walked on what enters them, as often as that changes it."""

from collections.abc import Callable
from typing import Any

from jaxnorm._tracing._values import Body, Value, either
from jaxnorm._tracing._views import inside_scan

#: Walks a body; with ``quiet`` nothing is noted.
Run = Callable[..., Body]

#: The values of a loop's results, and what it does at each turn if that is one layer's.
Walked = tuple[list[Value], Body | None]


def _settled(carry: list[Value], turn: Callable[[list[Value]], list[Value]]) -> list[Value]:
    """What a loop carries, whichever turn it is."""
    while (joint := list(map(either, carry, turn(carry)))) != carry:
        carry = joint
    return carry


def scan_counts(equation: Any) -> tuple[int, int]:
    """How many operands a scan's body gets whole at every turn, and how many it hands on.

    By their shapes, since the parameters' names are not those of every JAX: what is scanned over,
    and what is stacked, has one axis more outside than inside; both come last.
    """
    inner = equation.params["jaxpr"].jaxpr
    ins = zip(equation.invars, inner.invars, strict=True)
    outs = zip(equation.outvars, inner.outvars, strict=True)
    whole, carry = (sum(a.aval.ndim == b.aval.ndim for a, b in pairs) for pairs in (ins, outs))
    return whole - carry, carry


def _scan(run: Run, equation: Any, values: list[Value]) -> Walked:
    consts, carry = scan_counts(equation)
    slices = [
        value._replace(
            views=tuple(map(inside_scan, value.views)),
            altered=tuple(map(inside_scan, value.altered)),
        )
        for value in values[consts + carry :]
    ]

    def turn(carried: list[Value], quiet: bool = True) -> Body:
        return run(equation, equation.params["jaxpr"], [*values[:consts], *carried, *slices], quiet)

    start = values[consts : consts + carry]
    body = turn(_settled(start, lambda carried: turn(carried).values()[:carry]), quiet=False)
    stacked = [value._replace(views=(), altered=()) for value in body.values()[carry:]]
    return [*body.values()[:carry], *stacked], body if next(body.products(), None) else None


def _while(run: Run, equation: Any, values: list[Value]) -> Walked:
    start = equation.params["cond_nconsts"]
    consts = values[start : start + equation.params["body_nconsts"]]

    def turn(carried: list[Value], quiet: bool = True) -> list[Value]:
        return run(equation, equation.params["body_jaxpr"], [*consts, *carried], quiet).values()

    carry = _settled(values[start + len(consts) :], turn)
    run(equation, equation.params["cond_jaxpr"], [*values[:start], *carry])
    return turn(carry, quiet=False), None


def _cond(run: Run, equation: Any, values: list[Value]) -> Walked:
    results, *others = (
        run(equation, branch, values[1:]).values() for branch in equation.params["branches"]
    )
    for other in others:
        results = list(map(either, results, other))
    return results, None


LOOPS = {"scan": _scan, "while": _while, "cond": _cond}
