"""Loops and branches: their bodies walked on what enters them, as often as that changes it."""

from collections.abc import Callable
from typing import Any

from jaxnorm._tracing._values import Value, either
from jaxnorm._tracing._views import inside_scan

#: Walks a body: the values of its results, and with ``quiet`` nothing is noted.
Run = Callable[..., list[Value]]


def _settled(carry: list[Value], body: Callable[[list[Value], bool], list[Value]]) -> list[Value]:
    """What a loop carries, whichever turn it is."""
    while (joint := list(map(either, carry, body(carry, True)))) != carry:
        carry = joint
    return carry


def _scan_counts(equation: Any) -> tuple[int, int]:
    """How many operands a scan's body gets whole at every turn, and how many it hands on.

    By their shapes, since the parameters' names are not those of every JAX: what is scanned over,
    and what is stacked, has one axis more outside than inside; both come last.
    """
    inner = equation.params["jaxpr"].jaxpr
    ins = zip(equation.invars, inner.invars, strict=True)
    outs = zip(equation.outvars, inner.outvars, strict=True)
    whole, carry = (sum(a.aval.ndim == b.aval.ndim for a, b in pairs) for pairs in (ins, outs))
    return whole - carry, carry


def _scan(run: Run, equation: Any, values: list[Value]) -> list[Value]:
    consts, carry = _scan_counts(equation)
    slices = [
        value._replace(views=tuple(map(inside_scan, value.views)))
        for value in values[consts + carry :]
    ]

    def body(carried: list[Value], quiet: bool) -> list[Value]:
        return run(equation.params["jaxpr"], [*values[:consts], *carried, *slices], quiet)

    start = values[consts : consts + carry]
    results = body(_settled(start, lambda c, quiet: body(c, quiet)[:carry]), False)
    return [*results[:carry], *(value._replace(views=()) for value in results[carry:])]


def _while(run: Run, equation: Any, values: list[Value]) -> list[Value]:
    start = equation.params["cond_nconsts"]
    consts = values[start : start + equation.params["body_nconsts"]]

    def body(carried: list[Value], quiet: bool) -> list[Value]:
        return run(equation.params["body_jaxpr"], [*consts, *carried], quiet)

    carry = _settled(values[start + len(consts) :], body)
    run(equation.params["cond_jaxpr"], [*values[:start], *carry])
    return body(carry, False)


def _cond(run: Run, equation: Any, values: list[Value]) -> list[Value]:
    results, *others = (run(branch, values[1:]) for branch in equation.params["branches"])
    for other in others:
        results = list(map(either, results, other))
    return results


LOOPS: dict[str, Callable[[Run, Any, list[Value]], list[Value]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
