"""What one equation says: the body it stands for, the forms it makes, the axes it contracts."""

import re
from collections.abc import Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxnorm._tracing._values import CONSTANT, Product, Value
from jaxnorm._tracing._views import View, broadcast, joined, looked_up, scaled, viewed, whole
from jaxnorm._trees._paths import Path

#: Where a primitive that only wraps other equations keeps them.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")

#: The primitives that may add a bias.
SUMS = ("add", "add_any")

#: The indices of an einsum of three operands or more, as the names of its equations have them.
_EINSUM = re.compile(r"[^,()/>-]*(?:,[^,()/>-]*){2,}(?:->[^,()/]*)?")


def sources(values: list[Value]) -> frozenset[Path]:
    """The parameters that any of an equation's operands is a function of."""
    return frozenset(path for value in values for path in value.sources)


def body_of(equation: Any, values: list[Value]) -> ClosedJaxpr | None:
    """The equations that a wrapping primitive stands for, if it hands parameters on as they are."""
    for key in _CALLS:
        body = equation.params.get(key)
        if isinstance(body, Jaxpr) and not body.constvars:
            body = ClosedJaxpr(body, [])
        if isinstance(body, ClosedJaxpr) and len(body.jaxpr.invars) == len(values):
            pairs = zip(equation.invars, body.jaxpr.invars, values, strict=True)
            if all(a.aval.shape == b.aval.shape for a, b, v in pairs if v.followed):
                return body
    return None


def form_of(equation: Any, value: Value, shape: tuple[int, ...]) -> Value | None:
    """A parameter or a product in another form, if it is itself in it."""
    views = [view for v in value.views if (view := viewed(v, equation, shape)) is not None]
    if value.views and len(views) == len(value.views):
        return value._replace(views=tuple(views))
    form = value.product and viewed(value.product.form, equation, shape)
    if value.product and form and form.has_all(once=True) and not form.turned:
        return value._replace(product=value.product._replace(form=form))
    altered = tuple(view for v in value.altered if (view := viewed(v, equation, shape)) is not None)
    return value._replace(altered=altered) if altered and not value.product else None


def multiplied(equation: Any, values: list[Value]) -> Value | None:
    """A parameter times a constant: a kernel's products are then those times the constant."""
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    side = 1 if name == "mul" and not values[0].views else 0
    others = [i for i in range(len(values)) if i != side]
    if name not in ("neg", "div", "mul") or any(values[i] != CONSTANT for i in others):
        return None
    views = [view for view in values[side].views if len(view.dims) == len(shape)]
    constants = [equation.invars[i].aval.shape for i in others]
    product = tuple(scaled(view, shape, *constants) for view in views)
    return values[side]._replace(views=product) if product else None


def altered(equation: Any, values: list[Value]) -> tuple[View, ...]:
    """The forms of parameters whose numbers an equation changes one by one, or chooses from.

    A weight that meets inputs, its mask and its scale, stays one; an input to which one is added,
    its position, is none any more as soon as another meets it, nor is a sum with another.
    """
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    if name == "gather":
        return tuple(looked_up(v, equation, shape) for v in (*values[0].views, *values[0].altered))
    if name not in ("add", "div", "mul", "select_n", "sub"):
        return ()
    found, adds = [], name in ("add", "sub")
    for i, value in enumerate(values):
        meets = any(v.input for j, v in enumerate(values) if j != i)
        for view in (*value.views, *value.altered):
            gone = value.input and meets and (adds or view.added)
            if len(view.dims) == len(shape) and not gone:
                form = broadcast(view, shape)
                found.append(form._replace(added=view.added or (adds and meets)))
    return tuple(found)


def added(equation: Any, values: list[Value], makes: Product | None) -> int | None:
    """Which operand of a sum is the bias of a product that is as it was made; None for the rest."""
    if makes is None or equation.primitive.name not in SUMS or makes.use.in_groups:
        return None
    is_as_made = makes.form == whole(makes.form.path, makes.form.shape)
    return int(values[0].product is not None) if is_as_made else None


def altered_kernels(equation: Any, values: list[Value]) -> Iterator[Path]:
    """The parameters that a product of inputs uses as a kernel: over some axes summed, not all."""
    is_conv = equation.primitive.name == "conv_general_dilated"
    for side, other in ((1, 0),) if is_conv else ((0, 1), (1, 0)):
        summed, groups, places = product_axes(equation, side)
        free = [axis for axis, place in places.items() if is_conv or place >= groups]
        for view in values[side].altered if values[other].input else ():
            if view.counts(summed) and view.counts(free):
                yield view.path


def concatenated(equation: Any, values: list[Value]) -> Value:
    """Several parameters, or one and constants, as one array; each is still itself in it."""
    axis, size = equation.params["dimension"], equation.outvars[0].aval.shape
    views = [joined(view, axis, size[axis]) for value in values for view in value.views]
    changed = any(value.sources and not value.views for value in values)
    return Value(() if changed else tuple(views), sources(values))


def product_axes(equation: Any, side: int) -> tuple[tuple[int, ...], int, dict[int, int]]:
    """The axes of one operand that a product sums over, and where in the result the others are.

    A matrix product has the batch axes first, then the left operand's free axes, then the right's;
    between the two is how many batch axes there are.
    """
    ragged = equation.params.get("ragged_dot_dimension_numbers")
    numbers = ragged.dot_dimension_numbers if ragged else equation.params["dimension_numbers"]
    if equation.primitive.name == "conv_general_dilated":
        return tuple(numbers.rhs_spec[1:]), 0, {numbers.rhs_spec[0]: numbers.out_spec[1]}
    contracted, batch = numbers
    used = [{*contracted[0], *batch[0]}, {*contracted[1], *batch[1], *groups_of(equation)}]
    free = [[a for a in range(equation.invars[i].aval.ndim) if a not in used[i]] for i in (0, 1)]
    places = [*batch[side], *((None,) * len(free[0]) if side else ()), *free[side]]
    named = {axis: place for place, axis in enumerate(places) if axis is not None}
    return tuple(contracted[side]), len(batch[0]), named


def groups_of(equation: Any) -> tuple[int, ...]:
    """The right operand's axes that count groups of rows, each with its part (a ragged product)."""
    ragged = equation.params.get("ragged_dot_dimension_numbers")
    return tuple(ragged.rhs_group_dimensions) if ragged else ()


def no_kernels(equation: Any, sides: list[int]) -> str | None:
    """Why the operands on these sides of a product are not understood as kernels; None if one is.

    An einsum's equations have its indices as the name that they are traced under.
    """
    einsum = _EINSUM.search(str(equation.source_info.name_stack))
    match equation.primitive.name:
        case _ if einsum:
            return (
                f"is in the einsum {einsum[0]!r} of more than two operands, whose sizes decide "
                "which of them JAX multiplies first: split it into einsums of two"
            )
        case _ if len(sides) > 1:
            return "is multiplied with another parameter"
        case "conv_general_dilated" if sides == [0] or equation.params["batch_group_count"] != 1:
            return "is what a convolution slides over"
        case "ragged_dot_general" if sides == [0] or not groups_of(equation):
            return "is in a ragged product, and has no part for each group of its rows"
    return None
