"""Residual streams of a program: a graph of the values that depend on the inputs, and its sums.

The *distance* of one value from another is the number of kernels that every path between them
passes. A sum is one of a stream with a branch if one of its operands is at distance 0 from a value
from which the other operand is at distance 1 or more; or, for a shortcut with a kernel, at
distances 1 and 2 or more.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import PyTree

from jaxnorm._paths import Path, listed, map_entries, named_entries
from jaxnorm._trace.interpret import is_flag, scan_counts

_PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")
_SUMS = ("add", "add_any")
_SLICES = ("slice", "dynamic_slice", "gather", "split")
_QUOTIENTS = ("mul", "div", "dot_general")
_VIEWS = ("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze", "transpose")
#: Operations by which a factor of the operand is a factor of the result.
_LINEAR = (*_VIEWS, *_SUMS, "pad", "reduce_sum", "sharding_constraint")


class Constant(NamedTuple):
    """Value that depends on no input.

    Attributes:
        parameters: the paths of the parameters of which it is a function.
        value: the number, if it is a known scalar.
    """

    parameters: frozenset[Path] = frozenset()
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
        is_scaled: True if a constant below 1 follows it in the branch or the stream.
        repeats: how often the branch is added.
    """

    path: Path
    is_scaled: bool
    repeats: int


class Graph:
    """Values of a program that depend on its inputs, in execution order, with calls inlined."""

    def __init__(self, kernels: frozenset[Path] | None) -> None:
        self.kernels = kernels
        self.values: list[Value] = []

    @classmethod
    def traced(
        cls,
        apply: Callable[..., Any],
        params: PyTree,
        inputs: tuple[Any, ...],
        kernels: frozenset[Path] | None,
    ) -> "Graph":
        named = named_entries(params)
        arrays = {path: entry for path, entry in named if hasattr(entry, "shape")}

        def run(arrays: dict[Path, Any], *inputs: Any) -> Any:
            return apply(map_entries(lambda path, x: arrays.get(path, x), params), *inputs)

        flags = tuple(i + 1 for i, x in enumerate(inputs) if is_flag(x))
        closed = jax.make_jaxpr(run, static_argnums=flags)(arrays, *inputs)
        graph = cls(kernels)
        operands: list[Any] = [Constant(frozenset([path])) for path in sorted(arrays)]
        for variable in closed.jaxpr.invars[len(operands) :]:
            operands.append(graph.add(Value("input", (), Constant(), variable.aval.shape)))
        graph.run(closed, operands, 1)
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
        name, body = equation.primitive.name, _body(equation)
        if not indices:
            return [_evaluated(equation, operands)] * len(equation.outvars)
        if name == "scan":
            return self._scan(equation, operands, repeats)
        if body is not None and len(body.jaxpr.invars) == len(operands):
            return self.run(body, operands, repeats)
        if name in ("while", "cond") and constant.parameters:
            raise ValueError(
                f"the parameters {listed(sorted(constant.parameters))} are used inside a {name}, "
                "where residual_factors does not follow the stream; scale the last kernel of each "
                "branch by hand, with scale_branches(raw, factors)."
            )
        is_kernel = self.kernels is None or bool(constant.parameters & self.kernels)
        product = name in _PRODUCTS and bool(constant.parameters) and is_kernel
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
            else self.add(Value("slice", (x,), Constant(), variable.aval.shape, False, repeats))
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
        """Returns the branches of each stream."""
        sums = [x for i in range(len(self.values)) if (x := self._residual_sum(i))]
        stream_of: dict[int, int] = {}
        streams: list[list[Branch]] = []
        for item in sums:
            earlier = [i for i in self._reached(item.entry) if i in stream_of]
            number = stream_of[max(earlier)] if earlier else len(streams)
            if number == len(streams):
                streams.append([])
            stream_of[item.position] = number
            streams[number].extend(self._branches(item))
        return streams

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

    def _branches(self, item: Sum) -> list[Branch]:
        """Returns the last parameters of the branch of a sum."""
        after = [v for v in self.values[item.position + 1 :] if item.position in v.operands]
        scaled = bool(after) and all(_is_small(value) for value in after)
        repeats = self.values[item.position].repeats
        ends = dict(self._ends(item.branch, item.source, scaled, True))
        return [Branch(path, scaled, repeats) for path, scaled in ends.items()]

    def _ends(
        self, index: int, source: int, scaled: bool, linear: bool
    ) -> Iterator[tuple[Path, bool]]:
        """Yields the last parameters before a value, and if a constant below 1 follows them."""
        value = self.values[index]
        if index <= source or index not in self._distances(source, index + 1):
            return
        scaled = scaled or (linear and _is_small(value))
        linear = linear and (value.primitive in _LINEAR or value.is_product or _is_scaling(value))
        if value.is_product or _has_scale(value):
            yield self._parameter(value), scaled
        elif value.primitive in _QUOTIENTS and len(value.operands) > 1:
            yield from self._ends_of_product(value, source, scaled)
        else:
            for operand in value.operands:
                yield from self._ends(operand, source, scaled, linear)

    def _ends_of_product(self, value: Value, source: int, scaled: bool) -> Iterator[Any]:
        """Yields the last parameters of a value times a gate, or of a normalized value."""
        gates = [i for i in value.operands if self.values[self._viewed(i)].shape != value.shape]
        full = [i for i in value.operands if i not in gates]
        scales = [x for i in gates if _has_scale(x := self.values[self._viewed(i)])]
        if scales:
            yield self._parameter(scales[0]), scaled
            return
        kernels = [self._kernels(i, source) for i in (*full, *gates)]
        if len(full) != 1 or kernels[0] in kernels[1:]:
            raise ValueError(
                "a branch ends in a product of two values, or is normalized after its last kernel, "
                f"so that no one factor of a kernel scales it: {listed(sorted(kernels[0]))}. Add a "
                "scale after it, or scale its last kernel by hand."
            )
        yield from self._ends(full[0], source, scaled, False)

    def _viewed(self, index: int) -> int:
        """Returns the value of which a value is a broadcast or reshaped view."""
        while self.values[index].primitive in _VIEWS:
            index = self.values[index].operands[0]
        return index

    def _parameter(self, value: Value) -> Path:
        if len(value.constant.parameters) > 1:
            raise ValueError(
                f"the last product of a branch is with {listed(sorted(value.constant.parameters))} "
                "together; scale one of them by hand."
            )
        return next(iter(value.constant.parameters))

    def _kernels(self, index: int, source: int) -> frozenset[Path]:
        """Returns the last kernels before a value."""
        reached = [self.values[i] for i in self._reached(index) if i > source]
        return frozenset(p for v in reached if v.is_product for p in v.constant.parameters)


def _has_scale(value: Value) -> bool:
    return value.primitive in ("mul", "div") and bool(value.constant.parameters)


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
    """Returns the parameters of several constants together, and the number of a single one."""
    constants = list(constants)
    parameters = frozenset[Path]().union(*(x.parameters for x in constants))
    return Constant(parameters, constants[0].value if len(constants) == 1 else None)


def _evaluated(equation: Any, operands: list[Constant]) -> Constant:
    """Returns the constant that an equation computes; its number if all operands are numbers."""
    joined = _joined(operands)
    if joined.parameters or any(x.value is None for x in operands) or not operands:
        return joined._replace(value=None)
    numbers = [
        np.asarray(x.value, v.aval.dtype) for x, v in zip(operands, equation.invars, strict=True)
    ]
    with jax.ensure_compile_time_eval():
        result = equation.primitive.bind(*numbers, **equation.params)
    return joined._replace(value=None) if equation.primitive.multiple_results else _constant(result)


def _consts(closed: ClosedJaxpr) -> list[tuple[Any, Any]]:
    return list(zip(closed.jaxpr.constvars, closed.consts, strict=True))


def _body(equation: Any) -> ClosedJaxpr | None:
    """Returns the program that a call stands for."""
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = equation.params.get(key)
        if isinstance(body, Jaxpr) and not body.constvars:
            return ClosedJaxpr(body, [])
        if isinstance(body, ClosedJaxpr):
            return body
    return None
