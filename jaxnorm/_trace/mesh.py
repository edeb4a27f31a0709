"""Mesh axes of products inside a checked shard_map, from the types of a program's variables."""

from typing import Any, NamedTuple

from jaxnorm._mesh import varying_axes
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.primitives import PRODUCTS
from jaxnorm._trace.replay import Place


class MeshAxes(NamedTuple):
    """Mesh axes of a product.

    Attributes:
        shared: those along which both operands vary, over which the fan-in may be split.
        summed: those over which the model sums the product next.
    """

    shared: frozenset[str] = frozenset()
    summed: frozenset[str] = frozenset()


def product_mesh_axes(program: Program) -> dict[int, MeshAxes]:
    """Returns the mesh axes of each product, by its use; without products that do not vary."""
    axes: dict[int, MeshAxes] = {}
    for place, layer in program.layers.items():
        result = layer.equation.outvars[0]
        if not layer.product.biased and varying_axes(result.aval):
            shared, summed = _shared(program, place), _summed(program, place, result)
            axes[id(layer.product.use)] = MeshAxes(shared, summed)
    return axes


def _equations(program: Program, place: Place) -> Any:
    return (program.bodies[place] if place else program.closed).jaxpr.eqns


def _shared(program: Program, place: Place) -> frozenset[str]:
    """Returns the mesh axes along which both operands vary before JAX casts them to one type."""
    equations = _equations(program, place[:-1])
    equation = equations[place[-1]]
    axes = varying_axes(equation.outvars[0].aval)
    if equation.primitive.name not in PRODUCTS:
        return axes
    casts = (x for x in equations[: place[-1]] if x.primitive.name in ("pcast", "pvary"))
    uncast = {x.outvars[0]: x.invars[0] for x in casts}
    for atom in equation.invars:
        axes &= varying_axes(uncast.get(atom, atom).aval)
    return axes


def _summed(program: Program, place: Place, variable: Any) -> frozenset[str]:
    """Returns the mesh axes over which a variable is summed next, perhaps after a cast."""
    axes: set[str] = set()
    for equation in _equations(program, place[:-1]):
        if any(atom is variable for atom in equation.invars):
            params, name = equation.params, equation.primitive.name
            if name in ("psum", "psum_invariant", "reduce_scatter"):
                axes.update(params["axes"] if "axes" in params else params["axis_name"])
            elif name == "convert_element_type":
                axes |= _summed(program, place, equation.outvars[0])
    results = program.bodies[place[:-1]].jaxpr.outvars if place[:-1] else []
    caller = _equations(program, place[:-2])[place[-2]] if results else None
    if caller is not None and caller.primitive.name != "scan":
        for inside, outside in zip(results, caller.outvars, strict=True):
            if inside is variable:
                axes |= _summed(program, place[:-1], outside)
    return frozenset(axes)
