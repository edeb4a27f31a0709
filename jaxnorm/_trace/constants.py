"""Constants of a program, and multiples of parameters."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxnorm._paths import Path
from jaxnorm._trace.primitives import LINEAR, PRODUCTS, ROOTS, SCATTERS, STACKS, SUMS
from jaxnorm._trace.values import CONSTANT, Value, sources
from jaxnorm._trace.views import VIEWS


def known_number(array: Any) -> float | None:
    """Returns the real number that all entries of an array are, if it is known."""
    is_traced = isinstance(array, jax.core.Tracer)
    if is_traced or not jnp.issubdtype(jnp.result_type(array), np.floating):
        return None
    numbers = np.unique(np.asarray(array, np.float64))
    return float(numbers[0]) if len(numbers) == 1 else None


def number_of(equation: Any, values: list[Value]) -> float | None:
    """Returns the number that an equation of views, or of known scalars, computes."""
    if equation.primitive.name in VIEWS:
        return values[0].number
    variables = [*equation.invars, *equation.outvars]
    known = values and all(value.number is not None for value in values)
    if not known or any(v.aval.shape for v in variables) or equation.primitive.multiple_results:
        return None
    pairs = zip(values, equation.invars, strict=True)
    numbers = [np.asarray(value.number, variable.aval.dtype) for value, variable in pairs]
    with jax.ensure_compile_time_eval():
        return known_number(equation.primitive.bind(*numbers, **equation.params))


def factors_of(equation: Any, values: list[Value]) -> frozenset[Path]:
    """Returns the parameters of which the result of an operation on constants is a multiple."""
    name, (first, *others) = equation.primitive.name, values or [CONSTANT]
    if name == "pad" and others[0].number != 0:
        return frozenset()
    if name in (*SUMS, "sub", *STACKS, "select_n", *SCATTERS):
        terms = others if name == "select_n" else values[::2] if name in SCATTERS else values
        factors = [value.factors for value in terms if value.number != 0]
        return frozenset.intersection(*factors) if factors else frozenset()
    if name in ("div", *LINEAR):
        return first.factors - sources(others)
    if name in ("mul", *PRODUCTS):
        return (first.factors - sources(others)) | (others[0].factors - first.sources)
    return frozenset()


def stored_of(equation: Any, values: list[Value]) -> int:
    """Returns 2 for roots of stored arrays and what is computed from them, 1 for other such.

    One number that is computed from an array, such as the deviation of an activation, is none.
    """
    if all(math.prod(result.aval.shape) == 1 for result in equation.outvars):
        return 0
    stored = max((value.stored for value in values), default=0)
    is_root = equation.primitive.name in ROOTS and values[0].is_constant
    return 2 if stored and is_root else stored
