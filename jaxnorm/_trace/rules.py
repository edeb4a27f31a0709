"""Transfer rules: the abstract values that each primitive makes of those of its operands."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxnorm._paths import Path
from jaxnorm._phases import phased
from jaxnorm._trace.constants import factors_of, number_of, stored_of
from jaxnorm._trace.facts import Facts
from jaxnorm._trace.primitives import (
    AFFINE,
    PARTS,
    PRODUCTS,
    SUMS,
    phase_steps,
    product_axes,
    row_groups,
)
from jaxnorm._trace.values import INPUT, Product, Units, Use, Value, sources
from jaxnorm._trace.views import BROADCAST, PARTIAL, VIEWS, Dim, Factor, View

#: Operations of the inputs and a parameter that is no kernel: a bias, a scale, a table.
_ELEMENTWISE = (
    "add add_any and atan2 clamp concatenate div dynamic_update_slice eq gather ge gt le lt max "
    "min mul ne nextafter or pow rem scatter scatter_add scatter-add scatter-sub select_n sub xor"
)
#: Why a kernel of two possible fan-ins is refused.
MIXED = (
    "is mixed by values that depend on the inputs, along an axis of experts for example, before "
    "inputs are multiplied along another of its axes"
)
#: Indices of an einsum of three operands or more. JAX inlines it and begins with two of them, by
#: their sizes: only the name that its equations are traced under tells (a scope `q,k,v` would too).
_EINSUM = re.compile(r"[A-Za-z. ]*(?:,[A-Za-z. ]*){2,}(?:->[A-Za-z. ]*)?")


#: ``(facts, equation, values of the operands) -> values of the results``.
Rule = Callable[[Facts, Any, list[Value]], list[Value]]


def transfer(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    """Returns the abstract values of the results of any equation but a call or a loop."""
    is_followed = any(value.is_followed for value in values)
    rule = RULES.get(equation.primitive.name, _elementwise) if is_followed else _elementwise
    results = rule(facts, equation, values)
    if facts.nodes is None or len(results) != 1 or any(value.of_inputs for value in values):
        return results
    stored = stored_of(equation, values)
    results = [result._replace(stored=stored) for result in results]
    if not jnp.issubdtype(equation.outvars[0].aval.dtype, np.floating):  # a cast rounds
        return [result._replace(factors=frozenset(), number=None) for result in results]
    factors, number = factors_of(equation, values), number_of(equation, values)
    return [result._replace(factors=factors, number=number) for result in results]


# Views.


def _view(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    viewed = [_viewed(equation, values[0], out.aval.shape) for out in equation.outvars]
    results = [value or _elementwise(facts, equation, values)[0] for value in viewed]
    units, rule = values[0].units, VIEWS[equation.primitive.name]
    shapes = [out.aval.shape for out in equation.outvars]
    moved = [units and units.viewed(rule(units.view, equation, shape)) for shape in shapes]
    return [value._replace(units=units) for value, units in zip(results, moved, strict=True)]


def _viewed(equation: Any, value: Value, shape: tuple[int, ...]) -> Value | None:
    """Returns the value of a parameter, or of a product, in another form."""
    name, rule = equation.primitive.name, VIEWS[equation.primitive.name]
    if name == "stop_gradient" and not value.of_inputs:
        value = value._replace(stopped=True)
        if not value.views:
            return value
    views, altered = (
        tuple(view for v in several if (view := rule(v, equation, shape)) is not None)
        for several in (value.views, value.altered)
    )
    if value.views and len(views) == len(value.views):
        return value._replace(views=views)
    if value.product and name != "rev":
        product = value.product.viewed(rule(value.product.form, equation, shape))
        return value._replace(product=product) if product else None
    return value._replace(altered=altered) if altered and not value.product else None


def _identity(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    return values


def _concatenated(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    """Several parameters, or parameters and constants, as one array."""
    if any(value.of_inputs for value in values):
        return _elementwise(facts, equation, values)
    axis, size = equation.params["dimension"], equation.outvars[0].aval.shape
    part = (Factor(PARTIAL, size[axis]),)
    views = [
        view.with_dims((*view.dims[:axis], part, *view.dims[axis + 1 :]))
        for value in values
        for view in value.views
    ]
    changed = any(value.sources and not value.views for value in values)
    return [Value(() if changed else tuple(views), sources(values))]


def _scaled(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    """A parameter times a constant: its products are those of the parameter, times the constant."""
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    side = 1 if name == "mul" and not values[0].views else 0
    others = [i for i in range(len(values)) if i != side]
    views = [view for view in values[side].views if len(view.dims) == len(shape)]
    if not views or not all(values[i].is_constant for i in others):
        return _elementwise(facts, equation, values)
    constants = [equation.invars[i].aval.shape for i in others]
    scaled = tuple(view.times_constant(shape, *constants) for view in views)
    return [values[side]._replace(views=scaled)]


# Sums and other elementwise operations.


def _sum(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    """A product with its bias, a straight-through estimator, or any other sum."""
    for i, j in ((0, 1), (1, 0)):
        product, bias = values[i].product, values[j]
        if product and not product.biased and _is_bias(facts, equation, product, i, bias):
            biased = product.with_bias(bias.views)
            facts.biases.extend(view.path for view in bias.views)
            facts.read.update(() if biased.bias else bias.sources)
            return [values[i]._replace(product=biased, altered=())]
    return _straight_through(facts, equation, values)


def _is_bias(facts: Facts, equation: Any, product: Product, side: int, bias: Value) -> bool:
    """Returns True for parameters that are no kernels, and constants that are equal for all rows.

    If all parameters may be kernels, one that is added as it is counts as a bias. The rows are the
    first axis that counts no units.
    """
    shapes = [atom.aval.shape for atom in equation.invars]
    if bias.of_inputs or shapes[side] != equation.outvars[0].aval.shape:
        return False
    if bias.sources:
        return not facts.is_of_kernel(bias) or (facts.kernels is None and bool(bias.views))
    rows = [axis for axis in range(len(shapes[side])) if axis not in product.unit_axes]
    return shapes[1 - side] != () and (not rows or shapes[1 - side][rows[0]] == 1)


def _straight_through(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    """``w + stop_gradient(q(w) - w)`` is a view of w: gradients pass as if it were w."""
    pairs = ((0, 1),) if equation.primitive.name == "sub" else ((0, 1), (1, 0))
    for i, j in pairs:
        kernel, rest = values[i], values[j]
        own = len(kernel.views) == 1 and rest.sources == kernel.sources
        if own and rest.stopped and not rest.views and not kernel.stopped:
            return [kernel._replace(views=(kernel.views[0]._replace(rounded=True),))]
    return _elementwise(facts, equation, values)


def _elementwise(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    """Any other function; parameters and inputs together are refused, unless it is elementwise."""
    paths, name = sources(values), equation.primitive.name
    of_inputs = any(value.of_inputs for value in values)
    facts.read.update(paths)
    if of_inputs and paths:
        if name not in _ELEMENTWISE.split():
            facts.refuse(paths, f"goes into a {name}, which has no transfer rule")
        # A function of a kernel's product and constants is measured at the product.
        met = (value.unmultiplied for value in values if not value.product)
        facts.met.update(frozenset().union(*met))
    unmultiplied = frozenset().union(*(value.unmultiplied for value in values))
    result = Value(
        sources=frozenset() if of_inputs else paths,
        by_constants=frozenset() if of_inputs else paths - unmultiplied,
        units=_scaled_units(equation, values),
        of_inputs=of_inputs,
        altered=tuple(_altered(equation, values)) if len(equation.outvars) == 1 else (),
        stopped=all(value.stopped or value.is_constant for value in values),
    )
    return [
        result._replace(activation=of_inputs and _is_activation(equation, values, out.aval.size))
        for out in equation.outvars
    ]


def _scaled_units(equation: Any, values: list[Value]) -> Units | None:
    """Returns the units of a product that is shifted and scaled, or of a function of a constant's.

    Parameters and constants shift and scale a product of inputs; of a product of constants, which
    stays a function of parameters, any elementwise function has the same units.
    """
    of_layers, of_inputs = [x for x in values if x.units], [x for x in values if x.of_inputs]
    if len(of_layers) != 1 or len(equation.outvars) != 1 or of_inputs not in ([], of_layers):
        return None
    units, shape = of_layers[0].units, equation.outvars[0].aval.shape
    is_affine = not of_inputs or equation.primitive.name in AFFINE
    return units if units and units.view.sizes == shape and is_affine else None


def _is_activation(equation: Any, values: list[Value], size: int) -> bool:
    """Returns True for an elementwise function of a layer's product, or of a part of it."""
    name, pairs = equation.primitive.name, zip(values, equation.invars, strict=True)
    if name in PARTS:
        return values[0].activation
    sizes = [value.activation and atom.aval.size for value, atom in pairs]
    return name not in PRODUCTS and size in sizes


def _altered(equation: Any, values: list[Value]) -> Iterator[View]:
    """Yields the parameters whose numbers an equation changes one by one, or selects from.

    A weight that meets inputs, its mask or its scale, stays one. A position that is added to inputs
    is none as soon as other inputs meet it; nor is a parameter that is added to a layer's product,
    or broadcast to a layer's activations: their bias, or their scale. A sum of weights that inputs
    mask or scale, such as (1 - t) v + t w, is one of weights.
    """
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    if name == "gather":
        yield from (_gathered(v, equation, shape) for v in (*values[0].views, *values[0].altered))
    if name not in ("add", "div", "mul", "select_n", "sub"):
        return
    adds = name in ("add", "sub")
    for i, value in enumerate(values):
        others = [(v, equation.invars[j]) for j, v in enumerate(values) if j != i]
        meets_inputs = any(v.of_inputs for v, _ in others)
        layers = [v for v, atom in others if v.activation and atom.aval.shape == shape]
        on_product = adds and any(v.product for v in layers)
        for view in (*value.views, *value.altered):
            alike = any(_is_of_weights(v, view) for v, _ in others)
            joins_inputs = adds and meets_inputs and not alike
            is_position = value.of_inputs and (joins_inputs or (view.added and meets_inputs))
            of_layer = layers and name != "select_n" and view.broadcast_axes()
            if len(view.dims) == len(shape) and not (is_position or of_layer or on_product):
                yield view.broadcast(shape)._replace(added=view.added or joins_inputs)


def _is_of_weights(value: Value, other: View) -> bool:
    """Returns True for parameters that inputs only mask or scale, spread like another one."""
    axes = other.broadcast_axes()
    alike = [view.broadcast_axes() == axes and not view.added for view in value.altered]
    return bool(alike) and all(alike)


def _gathered(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    """Returns the rows of a view: broadcast along the indices, and whole along other axes."""
    numbers, before = equation.params["dimension_numbers"], equation.invars[0].aval.shape
    removed = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(before)) if axis not in removed]
    dims: list[Dim] = [(Factor(BROADCAST, size),) for size in shape]
    for place, axis in zip(numbers.offset_dims, kept, strict=True):
        size = shape[place]
        dims[place] = view.dims[axis] if size == before[axis] else (Factor(PARTIAL, size),)
    return view.with_dims(dims)


# Products.


def _product(facts: Facts, equation: Any, values: list[Value]) -> list[Value]:
    of_inputs = any(value.of_inputs for value in values)
    values = [*(_as_data(equation, values, side) for side in (0, 1)), *values[2:]]
    paths, sides = sources(values), [i for i in (0, 1) if _is_kernel(facts, values, i)]
    if not sides:
        reason = "is changed by an input before it is multiplied with others, or looked up by one"
        facts.refuse(_altered_kernels(equation, values), reason, changed=True)
        facts.refuse(_mixed_kernels(equation, values), MIXED, changed=True)
        return _elementwise(facts, equation, values)
    result = INPUT._replace(activation=True) if of_inputs else Value(sources=paths)
    kernel, reason = values[sides[0]], _refusal(equation, sides)
    if of_inputs and not kernel.views:
        reason = reason or "is changed before it is multiplied with the inputs"
    if reason:
        facts.refuse(paths, reason, changed=of_inputs)
        return [result]
    other = values[1 - sides[0]]
    uses = [_use(facts, equation, view, sides[0], not other.of_parameters) for view in kernel.views]
    by_constants = frozenset() if of_inputs or not uses else paths - other.unmultiplied
    # Rows of different groups have different units in one place.
    if len(uses) == 1 and uses[0].is_complete and not row_groups(equation):
        product = Product.of(uses[0], equation.outvars[0].aval.shape)
        result = result._replace(product=product, units=Units.of(product, other))
    return [result._replace(by_constants=by_constants)]


def _as_data(equation: Any, values: list[Value], side: int) -> Value:
    """Returns an operand, without its sources if it is a layer's output that inputs attend to.

    The layer's own inputs are constants, such as the positions of a Transformer-XL. Inputs attend
    to its output if both operands are outputs of layers, and their units are summed over: otherwise
    it may be a kernel that a constant changes.
    """
    value, other = values[side], values[1 - side]
    is_output = value.by_constants and not value.unmultiplied
    attends = is_output and other.of_inputs and _attends(equation, values)
    return value._replace(sources=frozenset(), by_constants=frozenset()) if attends else value


def _is_kernel(facts: Facts, values: list[Value], side: int) -> bool:
    """Returns True for a function of kernels; not for a layer's output that no inputs multiply."""
    value, other = values[side], values[1 - side]
    is_layer = not (value.views or value.unmultiplied or other.of_inputs)
    return facts.is_of_kernel(value) and not is_layer


def _attends(equation: Any, values: list[Value]) -> bool:
    """Returns True if both operands are outputs of layers, and units of both are summed over."""
    if equation.primitive.name != "dot_general":
        return False
    contracted = [product_axes(equation, side)[0] for side in (0, 1)]
    pairs = zip(values, contracted, strict=True)
    return all(x.units and axes and not x.units.view.added_axes(axes) for x, axes in pairs)


def _mixed_kernels(equation: Any, values: list[Value]) -> Iterator[Path]:
    """Yields kernels, mixed by inputs, of which inputs are then multiplied along another axis.

    Such a kernel has one axis that mixes it, such as that of experts, and a second one that is
    summed over with the inputs. So has a layer whose output is multiplied along some units: with
    values that depend on the layer's inputs (a gate), with weights of groups that have inputs of
    their own, or with keys that all heads share.
    """
    for side, other, contracted, free in _sides(equation):
        units = values[side].units
        if (
            units is None
            or not values[other].of_inputs
            or units.multiplier & values[other].ancestors
        ):
            continue
        view = units.view
        is_query = _attends(equation, values) and view.added_axes(free)
        mixed = view.whole_axes(contracted) - units.grouped
        if mixed and view.own_axes(free) and not is_query:
            yield view.path


def _use(facts: Facts, equation: Any, view: View, side: int, multiplies_inputs: bool) -> Use:
    """Records the product of a kernel, perhaps with the inputs themselves."""
    contracted, groups, places = product_axes(equation, side)
    places = {axis: places[axis] for axis in places.keys() - view.broadcast_axes()}
    fan_in, steps = view.contracted(contracted), phase_steps(equation)
    strides = {view.whole_axis(axis): step for axis, step in steps.items()}
    if fan_in is None or None in strides:
        facts.refuse([view.path], "is contracted along a part of an axis, or joined to others")
    elif {axis - len(view.shape) for axis in view.scaled or ()} & {*fan_in}:
        reason = "is multiplied by a constant that differs along its fan-in, a mask say"
        facts.refuse([view.path], reason, changed=True)
    if fan_in:
        fan_in = phased(fan_in, {axis: step for axis, step in strides.items() if axis is not None})
    within = facts.within
    facts.uses.append(Use(view, fan_in, places, groups, multiplies_inputs, within, side))
    return facts.uses[-1]


def _refusal(equation: Any, sides: list[int]) -> str:
    """Returns why the operands on these sides of a product are no kernels; empty if one is."""
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
        case "ragged_dot_general" if sides == [0] or not row_groups(equation):
            return "is in a ragged product, and has no part for each group of its rows"
    return ""


def _altered_kernels(equation: Any, values: list[Value]) -> Iterator[Path]:
    """Yields the parameters that a product of inputs sums over some of their axes, not all."""
    for side, other, contracted, free in _sides(equation):
        for view in values[side].altered if values[other].of_inputs else ():
            if view.varies(contracted) and view.varies(free):
                yield view.path


def _sides(equation: Any) -> Iterator[tuple[int, int, tuple[int, ...], list[int]]]:
    """Yields each operand that may be a kernel: its side, the other side, and its axes.

    The axes are those that the product sums over, and those of units, without the batch axes.
    """
    is_conv = equation.primitive.name == "conv_general_dilated"
    for side, other in ((1, 0),) if is_conv else ((0, 1), (1, 0)):
        contracted, groups, places = product_axes(equation, side)
        free = [axis for axis, place in places.items() if is_conv or place >= groups]
        yield side, other, contracted, free


#: The transfer rules; a primitive that is not here is an elementwise operation, or is refused.
RULES: dict[str, Rule] = {
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(SUMS, _sum),
    **dict.fromkeys(("device_put", "optimization_barrier"), _identity),
    **dict.fromkeys(("mul", "div", "neg"), _scaled),
    "sub": _straight_through,
    "concatenate": _concatenated,
}
