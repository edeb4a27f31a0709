"""Where kernels meet their inputs: runs any library's model one primitive at a time.

A model is traced to a jaxpr, whose equations stand in execution order. Each kernel is followed
through type conversions, reshapes and transposes to the matrix product or convolution that uses it;
there a callback sees the pre-activations, and may replace them for everything that comes after.
So a pass over the layers needs no change to the model, and no knowledge of its library.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, Float, PyTree

from jaxnorm._bias import bias_additions
from jaxnorm._paths import Path

#: Primitives that only wrap other equations, and where they keep them.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
LOOPS = ("scan", "while", "cond", "shard_map")
#: Primitives whose result is the kernel still, in another form.
_VIEWS = (
    "convert_element_type",
    "reshape",
    "transpose",
    "squeeze",
    "broadcast_in_dim",
    "copy",
    "copy_p",
    "pvary",
    "pcast",
)
#: Those of them that leave its axes in their places.
_SAME_AXES = ("convert_element_type", "copy", "copy_p", "pvary", "pcast")


class KernelCall(NamedTuple):
    """One use of a kernel.

    Attributes:
        path: the kernel's path in the parameters.
        output: the pre-activations, without the bias unless it was asked for.
        unit_axes: the axes of ``output`` that count units, in the kernel's order; None if the model
            reshaped or transposed the kernel before using it.
        units: the axes of ``output`` that count units, in whatever order.
    """

    path: Path
    output: Float[Array, "..."]
    unit_axes: tuple[int, ...] | None
    units: tuple[int, ...]


#: What is called with each use, in execution order; its result replaces the output.
Visit = Callable[[KernelCall], Float[Array, "..."]]


class _View(NamedTuple):
    """A variable that holds a kernel, and whether its axes are the kernel's."""

    path: Path
    same_axes: bool


def visit_kernels(
    apply: Callable[..., Any],
    kernels: dict[Path, Any],
    inputs: tuple[Any, ...],
    visit: Visit,
    with_bias: bool = False,
) -> PyTree:
    """Runs ``apply(kernels, *inputs)`` with a callback at each kernel's product.

    Args:
        apply: any function of a dict of kernels (by path) and the inputs.
        kernels: arrays by path.
        inputs: the other arguments.
        visit: see `Visit`.
        with_bias: whether the callback sees the pre-activations after the bias, where it is added
            to the product directly.

    Raises:
        ValueError: for a kernel that is used inside a loop or a branch, where equations do not
            stand in execution order.
    """
    flags = [i for i, x in enumerate(inputs) if is_flag(x)]
    trace = jax.make_jaxpr(apply, return_shape=True, static_argnums=[i + 1 for i in flags])
    closed, shape = trace(kernels, *inputs)
    values = jax.tree.leaves((kernels, *(x for i, x in enumerate(inputs) if i not in flags)))
    paths = [_View(path, same_axes=True) for path in sorted(kernels)]
    views: list[_View | None] = [*paths, *[None] * (len(values) - len(paths))]
    outputs, _ = _run(closed, values, views, visit, with_bias)
    return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def is_flag(x: Any) -> bool:
    """Whether an argument is a Python value that a model may branch on, not an array."""
    return isinstance(x, (bool, int, float, str)) or x is None


def _run(
    closed: ClosedJaxpr,
    values: list[Any],
    views: list[_View | None],
    visit: Visit,
    with_bias: bool,
) -> tuple[list[Any], list[_View | None]]:
    """Evaluates a jaxpr; the second result says which outputs are kernels still."""
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(jaxpr.invars, values, strict=True))
    seen = {var: view for var, view in zip(jaxpr.invars, views, strict=True) if view is not None}

    sums = bias_additions(jaxpr) if with_bias else {}
    # Products whose bias is yet to come, by the variable of the sum.
    waiting: dict[Any, KernelCall] = {}

    for equation in jaxpr.eqns:
        result = equation.outvars[0] if equation.outvars else None

        def visit_later(call: KernelCall, result: Any = result) -> Any:
            if result not in sums:
                return visit(call)
            waiting[sums[result]] = call
            return call.output

        operands = [_read(env, atom) for atom in equation.invars]
        held = [_read(seen, atom, None) for atom in equation.invars]
        results, result_views = _evaluate(equation, operands, held, visit_later, with_bias)
        if result in waiting:
            results = [visit(waiting.pop(result)._replace(output=results[0]))]
        env.update(zip(equation.outvars, results, strict=True))
        found = zip(equation.outvars, result_views, strict=True)
        seen.update({var: view for var, view in found if view is not None})
    outputs = [_read(env, atom) for atom in jaxpr.outvars]
    return outputs, [_read(seen, atom, None) for atom in jaxpr.outvars]


def _read(env: dict[Any, Any], atom: Any, *default: None) -> Any:
    if isinstance(atom, Literal):
        return default[0] if default else atom.val
    return env.get(atom, *default) if default else env[atom]


def _evaluate(
    equation: Any, operands: list[Any], held: list[_View | None], visit: Visit, with_bias: bool
) -> tuple[list[Any], list[_View | None]]:
    """The results of one equation, and which of them are kernels still."""
    name = equation.primitive.name
    uses_kernel = any(view is not None for view in held)
    inner = inner_jaxpr(equation) if uses_kernel else None
    if uses_kernel and name in LOOPS:
        path = next(view.path for view in held if view is not None)
        raise ValueError(
            f"the kernel {path!r} is used inside a {name}, where layers do not run one after the "
            "other. Leave it out of the layout, or initialize it by itself."
        )
    if inner is not None and name not in LOOPS:
        return _run(inner, operands, held, visit, with_bias)
    results = _bind(equation, operands)
    if not uses_kernel:
        return results, [None] * len(results)
    if name in _VIEWS:
        view = held[0]
        same = view is not None and view.same_axes and name in _SAME_AXES
        return results, [None if view is None else _View(view.path, same)]
    units = _UNIT_AXES.get(name)
    if units is not None:
        results = [visit(_call(equation, held, results[0], units))]
    return results, [None] * len(results)


def _call(
    equation: Any, held: list[_View | None], output: Any, units: Callable[[Any, int], Iterable[int]]
) -> KernelCall:
    side = 0 if held[0] is not None else 1
    view = held[side]
    assert view is not None
    axes = tuple(units(equation, side))
    return KernelCall(view.path, output, axes if view.same_axes else None, axes)


def inner_jaxpr(equation: Any) -> ClosedJaxpr | None:
    """The equations that a wrapping primitive stands for."""
    for key in _CALLS:
        jaxpr = equation.params.get(key)
        if isinstance(jaxpr, ClosedJaxpr):
            return jaxpr
        if isinstance(jaxpr, Jaxpr) and not jaxpr.constvars:
            return ClosedJaxpr(jaxpr, [])
    return None


def _bind(equation: Any, operands: list[Any]) -> list[Any]:
    """Runs one primitive; a wrapping one as a whole, with its own rule of differentiation."""
    if inner_jaxpr(equation) is not None and equation.primitive.name not in LOOPS:
        return _run_whole(equation, operands)
    results = equation.primitive.bind(*operands, **equation.params)
    return list(results) if equation.primitive.multiple_results else [results]


def _run_whole(equation: Any, operands: list[Any]) -> list[Any]:
    """Runs an equation as a program of its own."""
    given = [(atom, x) for atom, x in zip(equation.invars, operands, strict=True)]
    inputs = {atom: x for atom, x in given if not isinstance(atom, Literal)}
    program = jax.make_jaxpr(lambda: None)().jaxpr.replace(
        invars=list(inputs), outvars=list(equation.outvars), eqns=[equation]
    )
    return list(jaxpr_as_fun(ClosedJaxpr(program, []))(*inputs.values()))


def _dot_units(equation: Any, side: int) -> range:
    """A product has the batch axes first, then the left operand's free axes, then the right's."""
    (contracted, batch) = equation.params["dimension_numbers"]
    free = [equation.invars[i].aval.ndim - len(contracted[i]) - len(batch[i]) for i in (0, 1)]
    start = len(batch[0]) + (0 if side == 0 else free[0])
    return range(start, start + free[side])


def _conv_units(equation: Any, side: int) -> tuple[int, ...]:
    del side
    return (equation.params["dimension_numbers"].out_spec[1],)


_UNIT_AXES: dict[str, Callable[[Any, int], Iterable[int]]] = {
    "dot_general": _dot_units,
    "conv_general_dilated": _conv_units,
}
