"""Evaluation of a traced program with other values at its products.

`jax.checkpoint` and calls with a derivative of their own stay around their equations. Parameters
may be wider than the program's: their views are as wide, and everything else has its own type.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, UInt

from jaxnorm._paths import Path
from jaxnorm._trace.values import Product
from jaxnorm._trace.views import VIEWS

#: Place of an equation: its index in the jaxpr, after those of the calls and scans around it.
Place = tuple[int, ...]


class Layer(NamedTuple):
    """Equation that computes a product, or adds its bias.

    Attributes:
        equation: the equation of the jaxpr.
        product: the product, without or with the bias.
        bias: the operand that is the bias, if it is added to a product in its own axes.
    """

    equation: Any
    product: Product
    bias: int | None

    @property
    def path(self) -> Path:
        """The kernel's path."""
        return self.product.form.path


#: Values that were collected at the products so far, by the path of the kernel.
Collected = dict[Path, Any]

#: The index of the current turn of each scan around a product, the outermost first.
Turns = tuple[UInt[Array, ""], ...]

#: ``(layer, operands, result, collected, turns) -> (replacement of the result, collected)``.
Replace = Callable[[Layer, list[Any], Any, Collected, Turns], tuple[Any, Collected]]


class Replay(NamedTuple):
    """Concrete evaluation of a program, with ``replace`` at each layer."""

    layers: dict[Place, Layer]
    bodies: dict[Place, ClosedJaxpr]
    replace_result: Replace

    def run(
        self,
        closed: ClosedJaxpr,
        arguments: list[Any],
        collected: Collected,
        turns: Turns,
        place: Place,
    ) -> tuple[list[Any], Collected]:
        jaxpr = closed.jaxpr
        names, values = (*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arguments)
        env: dict[Any, Any] = dict(zip(names, values, strict=True))

        def read(atoms: Sequence[Any]) -> list[Any]:
            return [atom.val if isinstance(atom, Literal) else env[atom] for atom in atoms]

        for i, equation in enumerate(jaxpr.eqns):
            operands, here = read(equation.invars), (*place, i)
            results, collected = self._equation(equation, operands, collected, turns, here)
            if layer := self.layers.get(here):
                results[0], collected = self.replace_result(
                    layer, operands, results[0], collected, turns
                )
            env.update(zip(equation.outvars, results, strict=True))
        return read(jaxpr.outvars), collected

    def _equation(
        self, equation: Any, operands: list[Any], collected: Collected, turns: Turns, place: Place
    ) -> tuple[list[Any], Collected]:
        if place not in self.bodies:
            return _evaluate(equation, _in_own_types(equation, operands)), collected
        if equation.primitive.name == "scan":
            return self._scan(equation, operands, collected, turns, place)

        def run(operands: list[Any], collected: Collected) -> tuple[list[Any], Collected]:
            return self.run(self.bodies[place], operands, collected, turns, place)

        # Without a gradient, no checkpoint, so that the collected values are numbers.
        if _is_checkpoint(equation) and any(isinstance(x, jax.core.Tracer) for x in operands):
            options = {name: equation.params[name] for name in ("policy", "prevent_cse")}
            run = jax.checkpoint(run, **options)
        return run(operands, collected)

    def _scan(
        self, equation: Any, operands: list[Any], collected: Collected, turns: Turns, place: Place
    ) -> tuple[list[Any], Collected]:
        """Values collected inside a scan are stacked along axis 0."""
        consts, carry = scan_counts(equation)
        options = {name: equation.params[name] for name in ("length", "reverse", "unroll")}
        inside = (x for at, x in self.layers.items() if at[: len(place)] == place)
        paths = {layer.path for layer in inside} & {*collected}
        numbers = jnp.arange(options["length"], dtype=jnp.uint32)
        slices = operands[consts + carry :], numbers, {path: collected[path] for path in paths}

        def turn(carried: list[Any], slices: Any) -> Any:
            sliced, number, before = slices
            inputs = [*operands[:consts], *carried, *sliced]
            results, after = self.run(self.bodies[place], inputs, before, (*turns, number), place)
            return results[:carry], (results[carry:], after)

        start = operands[consts : consts + carry]
        end, (stacked, after) = jax.lax.scan(turn, start, slices, **options)
        return [*end, *stacked], collected | after


def _evaluate(equation: Any, operands: list[Any]) -> list[Any]:
    """Evaluates one equation; a call keeps its own rule of differentiation."""
    pairs = zip(equation.invars, operands, strict=True)
    inputs = {atom: x for atom, x in pairs if not isinstance(atom, Literal)}
    program = _empty().replace(invars=list(inputs), outvars=list(equation.outvars), eqns=[equation])
    return list(jaxpr_as_fun(ClosedJaxpr(program, []))(*inputs.values()))


def _in_own_types(equation: Any, operands: list[Any]) -> list[Any]:
    """Returns operands in the types that the program computes with; a view keeps wider ones."""
    if equation.primitive.name in VIEWS:
        return operands

    def cast(atom: Any, x: Any) -> Any:
        keeps = isinstance(atom, Literal) or x.dtype == atom.aval.dtype
        return x if keeps else x.astype(atom.aval.dtype)

    return [cast(atom, x) for atom, x in zip(equation.invars, operands, strict=True)]


@functools.cache
def _empty() -> Any:
    return jax.make_jaxpr(lambda: None)().jaxpr


def _is_checkpoint(equation: Any) -> bool:
    """Returns True for a `jax.checkpoint`, the name of which differs between versions of JAX."""
    return "prevent_cse" in equation.params


def scan_counts(equation: Any) -> tuple[int, int]:
    """Returns how many operands a scan's body gets whole at every turn, and how many it carries.

    The names of these parameters differ between versions of JAX, so they are counted by rank: the
    arrays that are scanned over, and those that are stacked, come last and have one axis more
    outside than inside.
    """
    inner = equation.params["jaxpr"].jaxpr
    ins = zip(equation.invars, inner.invars, strict=True)
    outs = zip(equation.outvars, inner.outvars, strict=True)
    whole, carry = (sum(a.aval.ndim == b.aval.ndim for a, b in pairs) for pairs in (ins, outs))
    return whole - carry, carry
