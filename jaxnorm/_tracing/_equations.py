"""What one equation says: the body it stands for, the forms it makes, the axes it contracts."""

from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxnorm._tracing._values import Value
from jaxnorm._tracing._views import joined, viewed
from jaxnorm._trees._paths import Path

#: Where a primitive that only wraps other equations keeps them.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


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
            if all(a.aval.shape == b.aval.shape for a, b, v in pairs if v.sources or v.product):
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
    return None


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
    numbers = equation.params["dimension_numbers"]
    if equation.primitive.name == "conv_general_dilated":
        return tuple(numbers.rhs_spec[1:]), 0, {numbers.rhs_spec[0]: numbers.out_spec[1]}
    contracted, batch = numbers
    used = [{*contracted[i], *batch[i]} for i in (0, 1)]
    free = [[a for a in range(equation.invars[i].aval.ndim) if a not in used[i]] for i in (0, 1)]
    places = [*batch[side], *((None,) * len(free[0]) if side else ()), *free[side]]
    named = {axis: place for place, axis in enumerate(places) if axis is not None}
    return tuple(contracted[side]), len(batch[0]), named
