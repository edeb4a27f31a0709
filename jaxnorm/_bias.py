"""Where a jaxpr adds a bias to a product, so that what comes after the addition can be seen."""

from typing import Any

from jax.extend.core import Jaxpr, Literal

#: Equations that may spread a bias over the samples before its addition.
_SPREADING = ("broadcast_in_dim", "reshape")


def bias_additions(jaxpr: Jaxpr) -> dict[Any, Any]:
    """The sum by its summand, for each variable that is used once, as ``variable + bias``.

    A bias is what has fewer numbers than what it is added to: the same for every sample.
    """
    uses: dict[Any, int] = {}
    for atom in (*jaxpr.outvars, *(atom for equation in jaxpr.eqns for atom in equation.invars)):
        if not isinstance(atom, Literal):
            uses[atom] = uses.get(atom, 0) + 1
    made_by = {var: equation for equation in jaxpr.eqns for var in equation.outvars}
    sums = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name != "add" or any(isinstance(x, Literal) for x in equation.invars):
            continue
        for value, other in (equation.invars, equation.invars[::-1]):
            if uses[value] == 1 and _size(other, made_by) < _size(value, {}):
                sums[value] = equation.outvars[0]
    return sums


def _size(variable: Any, made_by: dict[Any, Any]) -> int:
    """How many numbers a variable has, before it was spread."""
    equation = made_by.get(variable)
    spread = equation is not None and equation.primitive.name in _SPREADING
    before: Any = equation.invars[0] if equation is not None and spread else variable
    size: int = before.aval.size
    return size
