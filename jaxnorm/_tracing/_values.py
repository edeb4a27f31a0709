"""What a variable of a program is, in loops and branches too."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxnorm._tracing._views import View, inside_scan
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path


class Use(NamedTuple):
    """One product of a kernel with something else.

    Attributes:
        kernel: the form that is multiplied.
        fan_in: the kernel's axes, negative, that the product sums over; None for parts of axes.
        units: the axes of the product that count units, in the order of the kernel's form.
        in_groups: whether some of them count groups of inputs too, each with its own part of the
            kernel: the members of an ensemble, the heads of an attention.
        within: the loops, branches and shard_maps that it is in, the outermost first.
    """

    kernel: View
    fan_in: Axes | None
    units: tuple[int, ...]
    in_groups: bool
    within: tuple[str, ...]


class Product(NamedTuple):
    """A layer's product that nothing else has read yet, as it is or with its bias.

    Attributes:
        use: what made it.
        form: its axes, as they are now; its ``path`` is the kernel's.
        biased: whether a bias has been added.
        bias: that, if it is a parameter of one value a unit, in the kernel's order.
    """

    use: Use
    form: View
    biased: bool = False
    bias: Path | None = None

    def unit_axes(self, alone: bool = False) -> tuple[int, ...]:
        """The axes that count units, or those that count units ``alone``."""
        every = all if alone else any
        return tuple(
            axis
            for axis, dim in enumerate(self.form.dims)
            if dim and every(factor.axis in self.use.units for factor in dim)
        )

    def with_bias(self, views: tuple[View, ...]) -> "Product":
        """The sum with a bias that is a parameter in some form, or (without views) is none."""
        whole = len(views) == 1 and not views[0].turned and views[0].has_all(once=False)
        whole = whole and views[0].scaled is None
        per_unit = whole and all(
            axis in self.unit_axes()
            for axis, dim in enumerate(views[0].dims)
            for factor in dim
            if factor.axis >= 0 and factor.size > 1
        )
        per_unit = per_unit and self._in_order(views[0])
        return self._replace(biased=True, bias=views[0].path if per_unit else None)

    def _in_order(self, bias: View) -> bool:
        """Whether the bias has its units in the order that the kernel has them in."""
        dims = [(f for dim in view.dims for f in dim if f.size > 1) for view in (self.form, bias)]
        order = {axis: place for place, axis in enumerate(self.use.units)}
        units = [(order[f.axis], -f.step) for f in dims[0] if f.axis in order]
        values = [(f.axis, -f.step) for f in dims[1] if f.axis >= 0]
        orders = [sorted(range(len(keys)), key=keys.__getitem__) for keys in (units, values)]
        return orders[0] == orders[1] or all(keys == sorted(keys) for keys in (units, values))


class Value(NamedTuple):
    """What a variable is made of.

    Attributes:
        views: the parameters that it is a form of; several where they were concatenated.
        sources: the parameters that it is a function of, if it is one of parameters alone.
        input: whether it depends on the inputs.
        product: the layer's product that it is.
        altered: the forms of parameters of which it is no form itself, only because of what each
            number was added to or multiplied by.
    """

    views: tuple[View, ...] = ()
    sources: frozenset[Path] = frozenset()
    input: bool = False
    product: Product | None = None
    altered: tuple[View, ...] = ()

    @property
    def followed(self) -> bool:
        """Whether there is something of a parameter or a product in it that is followed."""
        return bool(self.sources or self.product or self.altered)


CONSTANT, INPUT = Value(), Value(input=True)


def either(one: Value, other: Value) -> Value:
    """What a variable is that is the one or the other."""
    if one == other:
        return one
    if one.input or other.input:
        forms = (*one.views, *one.altered, *other.views, *other.altered)
        return INPUT._replace(altered=tuple(dict.fromkeys(forms)))
    return Value(sources=one.sources | other.sources)


class Step(NamedTuple):
    """One equation of a program without calls; a variable is an object, unique in the program.

    ``makes``: the product that it computes, or that it adds a bias to. ``body``: that of a scan, or
    of a checkpoint, which has the variables of what is around it.
    ``added``: which operand is the bias, if it adds one to a product whose axes are its own still.
    """

    equation: Any
    inputs: list[object]
    outputs: list[object]
    makes: Product | None = None
    body: "Body | None" = None
    added: int | None = None


class Variable(NamedTuple):
    """A variable, and what it is."""

    name: object
    value: Value


class Body(NamedTuple):
    """A program, or what a loop does at each turn: its equations in execution order."""

    inputs: list[object]
    steps: list[Step]
    outputs: list[Variable]

    def layers(self) -> Iterator[Step]:
        """The steps that make a product or add its bias, those of scans in it included."""
        for step in self.steps:
            yield from (step,) if step.makes else ()
            yield from step.body.layers() if step.body else ()

    def products(self) -> Iterator[Product]:
        """What these make."""
        return (step.makes for step in self.layers() if step.makes)

    def values(self) -> list[Value]:
        """Those of its results."""
        return [variable.value for variable in self.outputs]


#: Walks a body; with ``quiet`` nothing is noted.
Run = Callable[..., Body]

#: The values of a loop's results, and what it does at each turn if that is one layer's.
Walked = tuple[list[Value], Body | None]


def _settled(carry: list[Value], turn: Callable[[list[Value]], list[Value]]) -> list[Value]:
    """What a loop carries, whichever turn it is."""
    while (joint := list(map(either, carry, turn(carry)))) != carry:
        carry = joint
    return carry


def is_checkpoint(equation: Any) -> bool:
    """Whether an equation is a `jax.checkpoint`, whose name is not that of every JAX."""
    return "prevent_cse" in equation.params


def scan_counts(equation: Any) -> tuple[int, int]:
    """How many operands a scan's body gets whole at every turn, and how many it hands on.

    By their shapes, since the parameters' names are not those of every JAX: what is scanned over,
    and what is stacked, has one axis more outside than inside; both come last.
    """
    inner = equation.params["jaxpr"].jaxpr
    ins = zip(equation.invars, inner.invars, strict=True)
    outs = zip(equation.outvars, inner.outvars, strict=True)
    whole, carry = (sum(a.aval.ndim == b.aval.ndim for a, b in pairs) for pairs in (ins, outs))
    return whole - carry, carry


def _scan(run: Run, equation: Any, values: list[Value]) -> Walked:
    consts, carry = scan_counts(equation)
    slices = [
        value._replace(
            views=tuple(map(inside_scan, value.views)),
            altered=tuple(map(inside_scan, value.altered)),
        )
        for value in values[consts + carry :]
    ]

    def turn(carried: list[Value], quiet: bool = True) -> Body:
        return run(equation, equation.params["jaxpr"], [*values[:consts], *carried, *slices], quiet)

    start = values[consts : consts + carry]
    body = turn(_settled(start, lambda carried: turn(carried).values()[:carry]), quiet=False)
    stacked = [value._replace(views=(), altered=()) for value in body.values()[carry:]]
    return [*body.values()[:carry], *stacked], body if next(body.products(), None) else None


def _while(run: Run, equation: Any, values: list[Value]) -> Walked:
    start = equation.params["cond_nconsts"]
    consts = values[start : start + equation.params["body_nconsts"]]

    def turn(carried: list[Value], quiet: bool = True) -> list[Value]:
        return run(equation, equation.params["body_jaxpr"], [*consts, *carried], quiet).values()

    carry = _settled(values[start + len(consts) :], turn)
    run(equation, equation.params["cond_jaxpr"], [*values[:start], *carry])
    return turn(carry, quiet=False), None


def _cond(run: Run, equation: Any, values: list[Value]) -> Walked:
    results, *others = (
        run(equation, branch, values[1:]).values() for branch in equation.params["branches"]
    )
    for other in others:
        results = list(map(either, results, other))
    return results, None


LOOPS = {"scan": _scan, "while": _while, "cond": _cond}
