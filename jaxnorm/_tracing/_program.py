"""A model's program, traced and walked, and run with something else in the products' places."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, PyTree, UInt

from jaxnorm._tracing._values import (
    CONSTANT,
    INPUT,
    Body,
    Step,
    Value,
    Variable,
    is_checkpoint,
    scan_counts,
)
from jaxnorm._tracing._views import whole
from jaxnorm._tracing._walk import Walk
from jaxnorm._trees._paths import Path, entries, rebuild_entries

#: What was found at the products so far, by the paths of their kernels.
Found = dict[Path, Any]

#: Which turn it is of each scan around a product, the outermost first.
Turns = tuple[UInt[Array, ""], ...]

#: ``(step, its operands, the product that it makes, found, turns) -> (what replaces it, found)``.
Replace = Callable[[Step, list[Any], Any, Found, Turns], tuple[Any, Found]]

#: Runs a body on its inputs: its results, and what was found.
Run = Callable[[Body, list[Any], Found, Turns], tuple[list[Any], Found]]


class Program(NamedTuple):
    """A traced function.

    Attributes:
        walk: what was found in it.
        body: its equations.
        given: its parameters and inputs.
        structure: that of the result.
    """

    walk: Walk
    body: Body
    given: list[Any]
    structure: Any

    def read(self) -> set[Path]:
        """The parameters that anything is made of but products, and sums with their biases."""
        return self.walk.read.union(*(value.sources for value in self.body.values()))

    def run(self, replace: Replace) -> tuple[PyTree, Found]:
        """The function's result, with ``replace`` at each step that makes a product."""

        def run(body: Body, given: list[Any], found: Found, turns: Turns) -> Any:
            env = self.walk.constants | dict(zip(body.inputs, given, strict=True))
            for step in body.steps:
                operands = [env[name] for name in step.inputs]
                if step.body:
                    around = _run_checkpoint if is_checkpoint(step.equation) else _run_scan
                    results, found = around(step, step.body, operands, found, turns, run)
                else:
                    results = _run_alone(step.equation, operands)
                if step.makes:
                    results[0], found = replace(step, operands, results[0], found, turns)
                env.update(zip(step.outputs, results, strict=True))
            return [env[name] for name, _ in body.outputs], found

        outputs, found = run(self.body, self.given, {}, ())
        return jax.tree.unflatten(self.structure, outputs), found


def trace(
    apply: Callable[..., Any],
    params: PyTree,
    inputs: tuple[Any, ...],
    kernels: Iterable[Path] | None = None,
    free: Sequence[str] = (),
) -> Program:
    """The program of ``apply(params, *inputs)``.

    Args:
        apply: of plain parameters and of the inputs.
        params: arrays, or their shapes; what is neither stays as it is.
        inputs: the same, and flags: Python values that the function may branch on.
        kernels: which parameters count as kernels; None for every one that is multiplied.
        free: regular expressions, searched for in the paths of those that count as inputs.
    """

    def is_free(path: Path) -> bool:
        return any(re.search(pattern, str(path)) for pattern in free)

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
    body = walk.run(closed, [Variable(object(), value) for value in values])
    return Program(walk, body, given, jax.tree.structure(shape))


def is_flag(x: Any) -> bool:
    """Whether an argument is a Python value that a model may branch on, not an array."""
    return isinstance(x, (bool, int, float, str)) or x is None


def _run_scan(
    step: Step, body: Body, operands: list[Any], found: Found, turns: Turns, run: Run
) -> tuple[list[Any], Found]:
    """What is found in a scan has its turns in front, also where it comes in again."""
    consts, carry = scan_counts(step.equation)
    options = {name: step.equation.params[name] for name in ("length", "reverse", "unroll")}
    own = {product.form.path for product in body.products()}
    numbers = jnp.arange(options["length"], dtype=jnp.uint32)
    slices = (operands[consts + carry :], numbers, {path: found[path] for path in own & {*found}})

    def turn(carried: list[Any], slices: Any) -> Any:
        given, number, before = slices
        inputs = [*operands[:consts], *carried, *given]
        results, after = run(body, inputs, before, (*turns, number))
        return results[:carry], (results[carry:], after)

    start = operands[consts : consts + carry]
    end, (stacked, after) = jax.lax.scan(turn, start, slices, **options)
    return [*end, *stacked], found | after


def _run_checkpoint(
    step: Step, body: Body, operands: list[Any], found: Found, turns: Turns, run: Run
) -> tuple[list[Any], Found]:
    """The gradient keeps of it what the model's own keeps."""

    def inside(operands: list[Any], found: Found) -> tuple[list[Any], Found]:
        return run(body, operands, found, turns)

    if not any(isinstance(x, jax.core.Tracer) for x in operands):
        return inside(operands, found)  # No gradient is taken, and what is found are numbers.
    options = {name: step.equation.params[name] for name in ("policy", "prevent_cse")}
    results: tuple[list[Any], Found] = jax.checkpoint(inside, **options)(operands, found)
    return results


def _run_alone(equation: Any, operands: list[Any]) -> list[Any]:
    """Runs an equation as a program of its own: a call with its own rule of differentiation."""
    given = zip(equation.invars, operands, strict=True)
    inputs = {atom: x for atom, x in given if not isinstance(atom, Literal)}
    program = _empty().replace(invars=list(inputs), outvars=list(equation.outvars), eqns=[equation])
    return list(jaxpr_as_fun(ClosedJaxpr(program, []))(*inputs.values()))


@functools.cache
def _empty() -> Any:
    return jax.make_jaxpr(lambda: None)().jaxpr
