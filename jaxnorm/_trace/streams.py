"""Residual streams of a program: a graph of the values that depend on the inputs, and its sums.

The *distance* of one value from another is the number of kernels that every path between them
passes. A sum is one of a stream with a branch if one of its operands is at distance 0 from a value
from which the other operand is at distance 1 or more; or, for a shortcut with a kernel, at
distances 1 and 2 or more.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import PyTree

from jaxnorm._paths import Path, listed
from jaxnorm._trace.interpret import call_bodies, closed_program, scan_counts
from jaxnorm._trace.rules import PRODUCTS

_SUMS = ("add", "add_any", "sub")
_SLICES = ("slice", "dynamic_slice", "gather", "split")
_QUOTIENTS = ("mul", "div", "dot_general")
_VIEWS = ("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze", "transpose")
#: Operations by which a factor of the operand is a factor of the result.
_LINEAR = (*_VIEWS, *_SUMS, "pad", "reduce_sum", "sharding_constraint")
#: Operations that are linear in their first operand and have no other array.
_LINEAR_IN_FIRST = (*_VIEWS, *_SLICES, "neg", "pad", "reduce_sum", "rev", "sharding_constraint")


class Constant(NamedTuple):
    """Value that depends on no input.

    Attributes:
        parameters: the paths of the parameters of which it is a function.
        factors: those among them of which it is a multiple.
        value: the number, if all its entries are one known number.
    """

    parameters: frozenset[Path] = frozenset()
    factors: frozenset[Path] = frozenset()
    value: float | None = None


class Value(NamedTuple):
    """Value that depends on the inputs.

    Attributes:
        primitive: the name of the operation that computes it.
        operands: the indices of the operands that depend on the inputs.
        constant: the parameters and the number among the other operands, joined.
        shape: its shape.
        is_product: True for the product of a value with a kernel.
        repeats: how often the scans around it run.
    """

    primitive: str
    operands: tuple[int, ...]
    constant: Constant
    shape: tuple[int, ...]
    is_product: bool = False
    repeats: int = 1


class Sum(NamedTuple):
    """Sum of a stream with a branch.

    Attributes:
        position: the sum.
        entry: the last value of the stream before the branch leaves or is added: an operand of the
            sum, or the input of a shortcut with a kernel.
        branch: the operand that is the branch.
        source: the value from which stream and branch come.
    """

    position: int
    entry: int
    branch: int
    source: int


class Branch(NamedTuple):
    """Last parameter of a branch.

    Attributes:
        path: the parameter.
        is_kernel: True for a kernel, False for a scale.
        is_scaled: True if a constant below 1 follows it in the branch or the stream.
        repeats: how often the branch is added, times its share of the units.
    """

    path: Path
    is_kernel: bool
    is_scaled: bool
    repeats: Fraction


class Graph:
    """Values of a program that depend on its inputs, in execution order, with calls inlined."""

    def __init__(self, kernels: frozenset[Path] | None) -> None:
        self.kernels = kernels
        self.values: list[Value] = []
        self.results: list[int] = []

    @classmethod
    def traced(
        cls,
        apply: Callable[..., Any],
        params: PyTree,
        inputs: tuple[Any, ...],
        kernels: frozenset[Path] | None,
    ) -> "Graph":
        closed, _, arrays, _ = closed_program(apply, params, inputs)
        graph = cls(kernels)
        paths = [frozenset([path]) for path in sorted(arrays)]
        operands: list[Any] = [Constant(path, path) for path in paths]
        for variable in closed.jaxpr.invars[len(operands) :]:
            operands.append(graph.add(Value("input", (), Constant(), variable.aval.shape)))
        results = graph.run(closed, operands, 1)
        graph.results = [x for x in results if not isinstance(x, Constant)]
        return graph

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def run(self, closed: ClosedJaxpr, operands: list[Any], repeats: int) -> list[Any]:
        """Adds the values of a program; returns its results: indices or constants."""
        env: dict[Any, Any] = dict(zip(closed.jaxpr.invars, operands, strict=True))
        env |= {name: _constant(value) for name, value in _consts(closed)}

        def read(atom: Any) -> Any:
            return _constant(atom.val) if isinstance(atom, Literal) else env[atom]

        for equation in closed.jaxpr.eqns:
            results = self._equation(equation, [read(atom) for atom in equation.invars], repeats)
            env.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in closed.jaxpr.outvars]

    def _equation(self, equation: Any, operands: list[Any], repeats: int) -> list[Any]:
        constant = _joined([x for x in operands if isinstance(x, Constant)])
        indices = tuple(x for x in operands if not isinstance(x, Constant))
        name, body = equation.primitive.name, next(call_bodies(equation), None)
        if name == "scan" and indices:
            return self._scan(equation, operands, repeats)
        if body is not None and name != "scan" and len(body.jaxpr.invars) == len(operands):
            return self.run(body, operands, repeats)
        if not indices:
            return [_evaluated(equation, operands)] * len(equation.outvars)
        if name in ("while", "cond") and constant.parameters:
            raise ValueError(
                f"the parameters {listed(sorted(constant.parameters))} are used inside a {name}, "
                "where residual_factors does not follow the stream; scale the last kernel of each "
                "branch by hand, with scale_branches(raw, factors)."
            )
        is_kernel = self.kernels is None or bool(constant.parameters & self.kernels)
        product = name in PRODUCTS and bool(constant.parameters) and is_kernel
        return [
            self.add(Value(name, indices, constant, v.aval.shape, product, repeats))
            for v in equation.outvars
        ]

    def _scan(self, equation: Any, operands: list[Any], repeats: int) -> list[Any]:
        """Adds the values of one turn, which count ``length`` times."""
        consts, carry = scan_counts(equation)
        body, length = equation.params["jaxpr"], equation.params["length"]
        slices = [
            x
            if isinstance(x, Constant)
            else self.add(Value("scan", (x,), Constant(), variable.aval.shape, False, repeats))
            for x, variable in zip(
                operands[consts + carry :], body.jaxpr.invars[consts + carry :], strict=True
            )
        ]
        start = [
            self.add(Value("input", (), x, v.aval.shape)) if isinstance(x, Constant) else x
            for x, v in zip(operands[consts:][:carry], body.jaxpr.invars[consts:], strict=False)
        ]
        return self.run(body, [*operands[:consts], *start, *slices], repeats * length)

    def streams(self) -> list[list[Branch]]:
        """Returns the branches of each stream that reaches a result."""
        live = set[int]().union(*map(self._ancestors, self.results))
        stream_of: dict[int, int] = {}
        streams: list[list[Sum]] = []
        for item in (x for i in sorted(live) if (x := self._residual_sum(i))):
            earlier = [i for i in self._reached(item.entry) if i in stream_of]
            number = stream_of[max(earlier)] if earlier else len(streams)
            if number == len(streams):
                streams.append([])
            stream_of[item.position] = number
            streams[number].append(item)
        return [self._branches(sums) for sums in streams]

    def _residual_sum(self, index: int) -> Sum | None:
        """Returns the sum of a stream with a branch that a value is, if it is one."""
        value = self.values[index]
        if value.primitive not in _SUMS or len(set(value.operands)) < 2:
            return None
        for stream, branch in (value.operands, value.operands[::-1]):
            common = self._reached(stream) & self._ancestors(branch)
            if common:
                distance = self._distances(max(common), index)
                if distance.get(stream) == 0 and distance.get(branch, 0) > 0:
                    return Sum(index, stream, branch, max(common))
        shared = self._ancestors(value.operands[0]) & self._ancestors(value.operands[1])
        distance = self._distances(max(shared), index) if shared else {}
        near, far = sorted(value.operands, key=lambda i: distance.get(i, 0))
        if distance.get(near) != 1 or distance.get(far, 0) < 2:
            return None
        gated = len(self._distances_of_factors(near, distance)) > 0
        mixed = None in self._distances_of_factors(far, distance)
        return None if gated or mixed else Sum(index, max(shared), far, max(shared))

    def _distances_of_factors(self, index: int, distance: dict[int, int]) -> set[int | None]:
        """Returns the distances of values that are multiplied, if they differ, before a value."""
        differing: set[int | None] = set()
        for i in self._ancestors(index) & distance.keys():
            factors = {distance.get(j) for j in self.values[i].operands}
            if self.values[i].primitive in _QUOTIENTS and len(factors) > 1:
                differing |= factors
        return differing

    def _distances(self, start: int, end: int) -> dict[int, int]:
        """Returns the number of kernels that every path from ``start`` to later values passes.

        A product of two values (a gate, attention) is as far as the farther one; a slice of single
        entries is no part of a stream.
        """
        distance = {start: 0}
        for index in range(start + 1, end):
            value = self.values[index]
            known = [distance[i] for i in value.operands if i in distance]
            if known and not self._is_entry(value):
                far = value.primitive in _QUOTIENTS and not value.is_product
                distance[index] = (max(known) if far else min(known)) + value.is_product
        return distance

    def _is_entry(self, value: Value) -> bool:
        before = self.values[value.operands[0]].shape
        return (
            value.primitive in _SLICES
            and math.prod(value.shape) < math.prod(before)
            and (
                len(value.shape) < len(before)
                or any(new == 1 < old for new, old in zip(value.shape, before, strict=False))
            )
        )

    def _reached(self, index: int) -> set[int]:
        """Returns the values that reach one without passing a kernel, and itself."""
        return self._backward(index, lambda value: not value.is_product)

    def _ancestors(self, index: int) -> set[int]:
        return self._backward(index, lambda value: True)

    def _backward(self, index: int, passes: Callable[[Value], bool]) -> set[int]:
        seen, stack = {index}, [index]
        while stack:
            value = self.values[stack.pop()]
            new = {i for i in value.operands if i not in seen} if passes(value) else set()
            seen |= new
            stack.extend(new)
        return seen

    def _branches(self, sums: list[Sum]) -> list[Branch]:
        """Returns the last parameters of the branches of a stream."""
        # A constant after the last sum may be one of the classifier.
        scaled = any(self._is_scaled(item) for item in sums[:-1] or sums)
        return [branch for item in sums for branch in self._ends(item, scaled)]

    def _is_scaled(self, item: Sum) -> bool:
        """Returns True if a constant below 1 follows a sum in every use, in the same scan."""
        repeats = self.values[item.position].repeats
        after = [v for v in self.values[item.position + 1 :] if item.position in v.operands]
        return bool(after) and all(_is_small(v) and v.repeats == repeats for v in after)

    def _ends(self, item: Sum, scaled: bool) -> Iterator[Branch]:
        """Yields the last parameters of the branch of a sum."""
        inside = self._distances(item.source, item.branch + 1).keys() - {item.source}
        repeats = Fraction(self.values[item.position].repeats)
        stack, seen = [(item.branch, scaled, True, repeats)], {item.branch}
        while stack:
            index, scaled, linear, share = stack.pop()
            value = self.values[index]
            scaled = scaled or (linear and _is_small(value))
            linear = linear and (value.primitive in _LINEAR or _is_scaling(value))
            end, before = self._last(value, item.source)
            if end:
                yield Branch(self._parameter(end), end.is_product, scaled, share)
            for i in (i for i in before if i in inside and i not in seen):
                seen.add(i)
                stack.append((i, scaled, linear, share * self._share(value, i)))

    def _share(self, value: Value, operand: int) -> Fraction:
        """Returns the part of the entries of a concatenation that an operand is; 1 elsewhere."""
        if value.primitive != "concatenate":
            return Fraction(1)
        return Fraction(math.prod(self.values[operand].shape), math.prod(value.shape))

    def _last(self, value: Value, source: int) -> tuple[Value | None, Iterable[int]]:
        """Returns the value that ends a branch, or the operands among which the end is.

        The scale of a normalization is the last value of its product. An activation such as silu
        is the product of two functions of one value, which leads to the end. In a product with a
        gate of fewer entries the gated value leads to the end.
        """
        if value.is_product or _has_scale(value):
            return value, ()
        if value.primitive not in _QUOTIENTS or len(value.operands) < 2:
            return None, value.operands
        for i, j in (value.operands, value.operands[::-1]):
            viewed = self._viewed(i)
            if _has_scale(self.values[viewed]) and viewed not in self._reached(j):
                return self.values[viewed], ()
        common = self._activated(value)
        if common is not None:
            return None, (common,)
        full = [i for i in value.operands if self.values[self._viewed(i)].shape == value.shape]
        kernels = [self._kernels(i, source) for i in value.operands]
        if len(full) == 1 and kernels[0].isdisjoint(kernels[1]):
            return None, full
        raise ValueError(
            "a branch ends in a product of two values, or is normalized after its last kernel, "
            "so that no one factor of a kernel scales it: "
            f"{listed(sorted(kernels[0] | kernels[1]))}. Add a scale after it, or scale its last "
            "kernel by hand."
        )

    def _activated(self, value: Value) -> int | None:
        """Returns the value of which a product of two values is an elementwise function."""
        reached = [self._reached(i) for i in value.operands]
        common = max(reached[0] & reached[1], default=None)
        if common is None:
            return None
        between = {i for i in reached[0] | reached[1] if i >= common and common in self._reached(i)}
        shapes = {self.values[i].shape for i in between}
        return common if shapes == {value.shape} else None

    def _viewed(self, index: int) -> int:
        """Returns the value of which a value is a broadcast or reshaped view."""
        while self.values[index].primitive in _VIEWS:
            index = self.values[index].operands[0]
        return index

    def _parameter(self, value: Value) -> Path:
        if len(value.constant.factors) != 1:
            raise ValueError(
                "no one parameter is a factor of the last kernel of a branch, which is a function "
                f"of {listed(sorted(value.constant.parameters))}. Add a scale after it, or scale "
                "the branch by hand."
            )
        return next(iter(value.constant.factors))

    def _kernels(self, index: int, source: int) -> frozenset[Path]:
        """Returns the last kernels before a value."""
        reached = [self.values[i] for i in self._reached(index) if i > source]
        return frozenset(p for v in reached if v.is_product for p in v.constant.parameters)


def _has_scale(value: Value) -> bool:
    return value.primitive == "mul" and bool(value.constant.factors)


def _is_scaling(value: Value) -> bool:
    return value.primitive in ("mul", "div") and len(value.operands) == 1


def _is_small(value: Value) -> bool:
    """Returns True for the product with a constant of a size below 1."""
    number = value.constant.value
    if number is None or not _is_scaling(value) or value.constant.parameters:
        return False
    return abs(number) > 1 if value.primitive == "div" else abs(number) < 1


def _constant(value: Any) -> Constant:
    """Returns a constant with its number, if all its entries are the same known real number."""
    if isinstance(value, jax.core.Tracer) or not jnp.issubdtype(value.dtype, np.floating):
        return Constant()
    numbers = np.unique(np.asarray(value, np.float64))
    return Constant(value=float(numbers[0]) if len(numbers) == 1 else None)


def _joined(constants: Iterable[Constant]) -> Constant:
    """Returns the parameters of several constants together, and a single constant itself."""
    constants = list(constants)
    parameters = frozenset[Path]().union(*(x.parameters for x in constants))
    return constants[0] if len(constants) == 1 else Constant(parameters)


def _evaluated(equation: Any, operands: list[Constant]) -> Constant:
    """Returns the constant that an equation computes; its number if all operands are numbers."""
    name, parameters = equation.primitive.name, _joined(operands).parameters
    if name in _VIEWS:
        return operands[0]
    if parameters:
        return Constant(parameters, _common_factors(name, operands))
    variables = [*equation.invars, *equation.outvars]
    known = operands and all(x.value is not None for x in operands)
    if not known or any(v.aval.shape for v in variables) or equation.primitive.multiple_results:
        return Constant()
    numbers = [
        np.asarray(x.value, v.aval.dtype) for x, v in zip(operands, equation.invars, strict=True)
    ]
    with jax.ensure_compile_time_eval():
        return _constant(equation.primitive.bind(*numbers, **equation.params))


def _common_factors(name: str, operands: list[Constant]) -> frozenset[Path]:
    """Returns the parameters of which the result of an operation on constants is a multiple."""
    first, *rest = operands
    others = frozenset[Path]().union(*(x.parameters for x in rest))
    if name in ("div", *_LINEAR_IN_FIRST):
        return first.factors - others
    if name in ("mul", *PRODUCTS):
        return (first.factors - others) | (rest[0].factors - first.parameters)
    if name in (*_SUMS, "concatenate", "select_n"):
        terms = rest if name == "select_n" else operands
        factors = [x.factors for x in terms if x.value != 0]
        return frozenset.intersection(*factors) if factors else frozenset()
    return frozenset()


def _consts(closed: ClosedJaxpr) -> list[tuple[Any, Any]]:
    return list(zip(closed.jaxpr.constvars, closed.consts, strict=True))
