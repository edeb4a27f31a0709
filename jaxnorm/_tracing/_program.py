"""A model's program, traced and walked, and run with something else in the products' places."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import PyTree

from jaxnorm._paths import Path
from jaxnorm._tracing._values import CONSTANT, INPUT, Product, Step, Value, Variable
from jaxnorm._tracing._views import whole
from jaxnorm._tracing._walk import Walk

#: What a product is replaced by, before its bias is added or after that.
Replace = Callable[[Product, Any], Any]


class Program(NamedTuple):
    """A traced function.

    Attributes:
        walk: what was found in it.
        steps: its equations in execution order.
        inputs: the variables of its parameters and inputs.
        outputs: those of its results, and what they are.
        structure: that of the result.
    """

    walk: Walk
    steps: list[Step]
    inputs: list[object]
    outputs: list[Variable]
    structure: Any

    def run(self, params: dict[Path, Any], inputs: tuple[Any, ...], replace: Replace) -> PyTree:
        """The function's result, with ``replace`` at each step that makes a product."""
        given = jax.tree.leaves((params, *(x for x in inputs if not is_flag(x))))
        env = self.walk.constants | dict(zip(self.inputs, given, strict=True))
        for step in self.steps:
            results = _run_alone(step.equation, [env[name] for name in step.inputs])
            if step.makes is not None:
                results = [replace(step.makes, results[0])]
            env.update(zip(step.outputs, results, strict=True))
        return jax.tree.unflatten(self.structure, [env[name] for name, _ in self.outputs])


def trace(
    function: Callable[..., Any],
    params: dict[Path, Any],
    inputs: tuple[Any, ...],
    kernels: Iterable[Path] | None = None,
    free: Callable[[Path], bool] = lambda path: False,
) -> Program:
    """The program of ``function(params, *inputs)``.

    Args:
        function: of arrays by path, and of the inputs.
        params: arrays, or their shapes.
        inputs: the same, and flags: Python values that the function may branch on.
        kernels: which parameters count as kernels; None for every one that is multiplied.
        free: which of them count as inputs.
    """
    flags = [i + 1 for i, x in enumerate(inputs) if is_flag(x)]
    traced = jax.make_jaxpr(function, return_shape=True, static_argnums=flags)
    closed, shape = traced(params, *inputs)
    values = [
        INPUT if free(path) else Value((whole(path, tuple(x.shape)),), frozenset([path]))
        for path, x in sorted(params.items())
    ]
    others = len(closed.jaxpr.invars) - len(values)
    # Without inputs the constants are what kernels meet.
    walk = Walk(kernels, CONSTANT if others else INPUT)
    operands = [Variable(object(), value) for value in (*values, *[INPUT] * others)]
    steps, outputs = walk.run(closed, operands)
    names = [variable.name for variable in operands]
    return Program(walk, steps, names, outputs, jax.tree.structure(shape))


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
