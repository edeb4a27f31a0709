"""Which of its axes a program contracts each of its parameters along."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Literal

from jaxnorm._axis_views import RULES, View, inside_scan, joined
from jaxnorm._kernel_calls import inner_jaxpr
from jaxnorm._node import Axes
from jaxnorm._paths import Path

_NAMES = (
    "add add_any and atan2 clamp concatenate div dynamic_update_slice eq gather ge gt le lt max "
    "min mul ne nextafter or pow rem scatter scatter_add scatter-add select_n sub xor"
)
#: What may be done to inputs with a parameter that is no kernel: a bias, a scale, a table.
_ELEMENTWISE = frozenset(_NAMES.split())
_PRODUCTS = ("dot_general", "conv_general_dilated")


class Value(NamedTuple):
    """What a variable is made of.

    Attributes:
        views: the parameters that it is a form of; several where they were concatenated.
        sources: the parameters that it is a function of, if it is one of parameters alone.
        input: whether it depends on the inputs.
    """

    views: tuple[View, ...] = ()
    sources: frozenset[Path] = frozenset()
    input: bool = False


CONSTANT, INPUT = Value(), Value(input=True)


class Walk:
    """One pass over a program, with what it has found.

    Attributes:
        axes: the axes along which each parameter is contracted, one set a parameter.
        refused: why a parameter is not understood.
        quiet: whether nothing is noted, while a loop's carry is being found out.

    Args:
        constant: what the program's constants count as.
    """

    def __init__(self, constant: "Value") -> None:
        self.constant = constant
        self.axes: dict[Path, set[Axes]] = {}
        self.refused: dict[Path, str] = {}
        self.quiet = False

    def run(self, closed: ClosedJaxpr, values: Sequence[Value]) -> list[Value]:
        """The values of a program's results."""
        jaxpr = closed.jaxpr
        env = dict.fromkeys(jaxpr.constvars, self.constant)
        env.update(zip(jaxpr.invars, values, strict=True))

        def read(atom: Any) -> Value:
            return CONSTANT if isinstance(atom, Literal) else env[atom]

        for equation in jaxpr.eqns:
            results = self._results(equation, [read(atom) for atom in equation.invars])
            env.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _results(self, equation: Any, values: list[Value]) -> list[Value]:
        name, inner = equation.primitive.name, inner_jaxpr(equation)
        if not any(value.sources for value in values):
            return [INPUT if any(v.input for v in values) else CONSTANT] * len(equation.outvars)
        if name in _LOOPS:
            return _LOOPS[name](self, equation, values)
        if name == "shard_map" and not _whole_inside(equation, values):
            return self._plain(equation, values)
        if inner is not None and len(inner.jaxpr.invars) == len(values):
            return self.run(inner, values)
        if name == "optimization_barrier":
            return values
        if name in _PRODUCTS:
            return [self._product(equation, values)]
        if name == "concatenate" and not any(value.input for value in values):
            return [_concatenated(equation, values)]
        if name in RULES and values[0].views:
            return [self._viewed(equation, values[0], out) for out in equation.outvars]
        return self._plain(equation, values)

    def _plain(self, equation: Any, values: list[Value]) -> list[Value]:
        """Of an equation that makes something else of its operands."""
        sources = _sources(values)
        meets = any(value.input for value in values)
        if meets and equation.primitive.name not in _ELEMENTWISE:
            self._refuse(sources, f"goes into a {equation.primitive.name}")
        return [INPUT if meets else Value(sources=sources)] * len(equation.outvars)

    def _viewed(self, equation: Any, value: Value, out: Any) -> Value:
        rule = RULES[equation.primitive.name]
        views = [rule(view, equation, out.aval.shape) for view in value.views]
        seen = tuple(view for view in views if view is not None)
        return value._replace(views=seen if len(seen) == len(views) else ())

    def _product(self, equation: Any, values: list[Value]) -> Value:
        sources = _sources(values)
        is_conv = equation.primitive.name == "conv_general_dilated"
        if all(value.sources for value in values):
            self._refuse(sources, "is multiplied with another parameter")
        elif is_conv and (values[0].sources or equation.params["batch_group_count"] != 1):
            self._refuse(sources, "is what a convolution slides over")
        elif any(value.sources and not value.views for value in values):
            if any(value.input for value in values):
                self._refuse(sources, "is changed before it is multiplied with the inputs")
        else:
            side = 0 if values[0].views else 1
            dims = _contracted_dims(equation, side)
            for view in values[side].views:
                self._note(view, view.contracted(dims))
        return INPUT if any(value.input for value in values) else Value(sources=sources)

    def _note(self, view: View, axes: Axes | None) -> None:
        if axes is None:
            self._refuse([view.path], "is contracted along a part of an axis, or joined to others")
        elif axes and not self.quiet:
            self.axes.setdefault(view.path, set()).add(axes)

    def _refuse(self, paths: Iterable[Path], reason: str) -> None:
        if not self.quiet:
            for path in sorted(paths):
                self.refused.setdefault(path, reason)

    def settled(
        self, carry: list[Value], body: Callable[[list[Value]], list[Value]]
    ) -> list[Value]:
        """What a loop carries, whichever step it is."""
        loud, self.quiet = self.quiet, True
        while (joint := [_either(*pair) for pair in zip(carry, body(carry), strict=True)]) != carry:
            carry = joint
        self.quiet = loud
        return carry


def _sources(values: Iterable[Value]) -> frozenset[Path]:
    return frozenset(path for value in values for path in value.sources)


def _either(one: Value, other: Value) -> Value:
    """What a variable is that is the one or the other."""
    if one == other:
        return one
    if one.input or other.input:
        return INPUT
    return Value(sources=one.sources | other.sources)


def _no_view(value: Value) -> Value:
    return value._replace(views=())


def _concatenated(equation: Any, values: list[Value]) -> Value:
    """Several parameters, or one and constants, as one array; each is still itself in it."""
    axis, size = equation.params["dimension"], equation.outvars[0].aval.shape
    views = [joined(view, axis, size[axis]) for value in values for view in value.views]
    changed = any(value.sources and not value.views for value in values)
    return Value(() if changed else tuple(views), _sources(values))


def _contracted_dims(equation: Any, side: int) -> tuple[int, ...]:
    """The axes of one operand that a product sums over."""
    numbers = equation.params["dimension_numbers"]
    if equation.primitive.name == "dot_general":
        return tuple(numbers[0][side])
    return tuple(numbers.rhs_spec[1:])


def _whole_inside(equation: Any, values: list[Value]) -> bool:
    """Whether a shard_map sees parameters as they are outside."""
    inner = inner_jaxpr(equation)
    if inner is None:
        return False
    pairs = zip(equation.invars, inner.jaxpr.invars, values, strict=True)
    return all(a.aval.shape == b.aval.shape for a, b, value in pairs if value.sources)


def _scan_counts(equation: Any) -> tuple[int, int]:
    """How many operands a scan's body gets whole at every turn, and how many it hands on.

    By their shapes, since the parameters' names are not those of every JAX: what is scanned over,
    and what is stacked, has one axis more outside than inside; both come last.
    """
    inner = inner_jaxpr(equation)
    assert inner is not None
    ins = zip(equation.invars, inner.jaxpr.invars, strict=True)
    outs = zip(equation.outvars, inner.jaxpr.outvars, strict=True)
    whole, carry = (sum(a.aval.ndim == b.aval.ndim for a, b in pairs) for pairs in (ins, outs))
    return whole - carry, carry


def _scan(walk: Walk, equation: Any, values: list[Value]) -> list[Value]:
    consts, carry = _scan_counts(equation)
    slices = [
        value._replace(views=tuple(map(inside_scan, value.views)))
        for value in values[consts + carry :]
    ]

    def body(carried: list[Value]) -> list[Value]:
        return walk.run(equation.params["jaxpr"], [*values[:consts], *carried, *slices])

    results = body(walk.settled(values[consts : consts + carry], lambda c: body(c)[:carry]))
    return [*results[:carry], *map(_no_view, results[carry:])]


def _while(walk: Walk, equation: Any, values: list[Value]) -> list[Value]:
    start = equation.params["cond_nconsts"]
    consts = values[start : start + equation.params["body_nconsts"]]

    def body(carried: list[Value]) -> list[Value]:
        return walk.run(equation.params["body_jaxpr"], [*consts, *carried])

    return body(walk.settled(values[start + len(consts) :], body))


def _cond(walk: Walk, equation: Any, values: list[Value]) -> list[Value]:
    branches = [walk.run(branch, values[1:]) for branch in equation.params["branches"]]
    results = branches[0]
    for branch in branches[1:]:
        results = [_either(*pair) for pair in zip(results, branch, strict=True)]
    return results


_LOOPS = {"scan": _scan, "while": _while, "cond": _cond}
