"""A model's program, traced and walked, and run with something else in the products' places."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import PyTree

from jaxnorm._tracing._values import CONSTANT, INPUT, Product, Step, Value, Variable
from jaxnorm._tracing._views import whole
from jaxnorm._tracing._walk import Walk
from jaxnorm._trees._paths import Path, entries, rebuild_entries


class Program(NamedTuple):
    """A traced function.

    Attributes:
        walk: what was found in it.
        steps: its equations in execution order.
        given: the values of its parameters, inputs and constants.
        outputs: its results.
        structure: that of the result.
    """

    walk: Walk
    steps: list[Step]
    given: dict[object, Any]
    outputs: list[Variable]
    structure: Any

    def run(self, replace: Callable[[Product, Any], Any]) -> PyTree:
        """The function's result, with ``replace`` at each step that makes a product."""
        env = dict(self.given)
        for step in self.steps:
            results = _run_alone(step.equation, [env[name] for name in step.inputs])
            if step.makes is not None:
                results = [replace(step.makes, results[0])]
            env.update(zip(step.outputs, results, strict=True))
        return jax.tree.unflatten(self.structure, [env[name] for name, _ in self.outputs])


def trace(
    apply: Callable[..., Any],
    params: PyTree,
    inputs: tuple[Any, ...],
    kernels: Iterable[Path] | None = None,
    is_free: Callable[[Path], bool] = lambda path: False,
) -> Program:
    """The program of ``apply(params, *inputs)``.

    Args:
        apply: of plain parameters and of the inputs.
        params: arrays, or their shapes; what is neither stays as it is.
        inputs: the same, and flags: Python values that the function may branch on.
        kernels: which parameters count as kernels; None for every one that is multiplied.
        is_free: which of them count as inputs.
    """
    named = entries(params)
    arrays = {path: entry for path, entry in named if hasattr(entry, "shape")}

    def run(arrays: dict[Path, Any], *inputs: Any) -> Any:
        merged = [arrays.get(path, entry) for path, entry in named]
        return apply(rebuild_entries(params, merged), *inputs)

    flags = [i for i, x in enumerate(inputs) if is_flag(x)]
    traced = jax.make_jaxpr(run, return_shape=True, static_argnums=[i + 1 for i in flags])
    closed, shape = traced(arrays, *inputs)
    given = jax.tree.leaves((arrays, [x for i, x in enumerate(inputs) if i not in flags]))
    values = [
        INPUT if is_free(path) else Value((whole(path, tuple(x.shape)),), frozenset([path]))
        for path, x in sorted(arrays.items())
    ]
    values.extend([INPUT] * (len(given) - len(values)))
    # Without inputs the constants are what kernels meet.
    walk = Walk(kernels, CONSTANT if len(given) > len(arrays) else INPUT)
    operands = [Variable(object(), value) for value in values]
    steps, outputs = walk.run(closed, operands)
    known = {name: x for (name, _), x in zip(operands, given, strict=True)}
    return Program(walk, steps, walk.constants | known, outputs, jax.tree.structure(shape))


def is_flag(x: Any) -> bool:
    """Whether an argument is a Python value that a model may branch on, not an array."""
    return isinstance(x, (bool, int, float, str)) or x is None


def _run_alone(equation: Any, operands: list[Any]) -> list[Any]:
    """Runs an equation as a program of its own: a call with its own rule of differentiation."""
    given = zip(equation.invars, operands, strict=True)
    inputs = {atom: x for atom, x in given if not isinstance(atom, Literal)}
    program = _empty().replace(invars=list(inputs), outvars=list(equation.outvars), eqns=[equation])
    return list(jaxpr_as_fun(ClosedJaxpr(program, []))(*inputs.values()))


@functools.cache
def _empty() -> Any:
    return jax.make_jaxpr(lambda: None)().jaxpr
