"""The axes of a parameter or a product, through whatever only shows it in another form."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path

#: In the place of an axis: numbers that are no axis of the parameter, or a part of one.
SPREAD, PART = -1, -2


#: The primitives whose result is the first operand, number by number.
_SAME = (
    "convert_element_type copy copy_p name pcast pvary reduce_precision reshard "
    "sharding_constraint stop_gradient"
)


class Factor(NamedTuple):
    """A parameter's axis, or what a reshape has made a factor of its size, by steps along it."""

    axis: int
    size: int
    step: int = 1


class View(NamedTuple):
    """A parameter, or a layer's product, in some form.

    Attributes:
        path: the parameter's path; a product's is its kernel's.
        shape: its own shape.
        dims: for each axis of the form, the factors that it counts, the slowest first.
        turned: whether an axis has been reversed.
        added: whether it has been added to an input.
        layers: the axes that are gone because scans have sliced them, the outermost first.
        scaled: the parameter's axes along which the constants differ that it is multiplied by; None
            without such a constant.
    """

    path: Path
    shape: tuple[int, ...]
    dims: tuple[tuple[Factor, ...], ...]
    turned: bool = False
    added: bool = False
    layers: tuple[tuple[Factor, ...], ...] = ()
    scaled: frozenset[int] | None = None

    def has_all(self, once: bool) -> bool:
        """Whether every number of it is in the form, or those of all layers, and ``once``."""
        factors = [factor for dim in (*self.layers, *self.dims) for factor in dim]
        size = math.prod(factor.size for factor in factors if factor.axis >= 0)
        others = {factor.axis for factor in factors if factor.axis == PART or factor.size > 1}
        return size == math.prod(self.shape) and not others & {PART, SPREAD if once else PART}

    def spread(self) -> set[int]:
        """The form's axes along which it is the same throughout: they count none of its numbers."""
        return {axis for axis, dim in enumerate(self.dims) if {f.axis for f in dim} == {SPREAD}}

    def counts(self, axes: Iterable[int]) -> bool:
        """Whether it has different numbers along any of these axes of the form."""
        return any(f.axis != SPREAD and f.size > 1 for axis in axes for f in self.dims[axis])

    def contracted(self, dims: tuple[int, ...]) -> Axes | None:
        """The parameter's axes, negative, that a sum over these axes of the form covers.

        None if it covers a part of an axis, or sums what is the same number many times.
        """
        factors = [factor for dim in dims for factor in self.dims[dim]]
        covered = {f.axis: math.prod(g.size for g in factors if g.axis == f.axis) for f in factors}
        sizes = dict(enumerate(self.shape)) | {SPREAD: 1}
        if any(size != sizes.get(axis) for axis, size in covered.items()):
            return None
        return tuple(sorted(axis - len(self.shape) for axis in covered if axis >= 0))

    def layer_axes(self) -> Axes | None:
        """The parameter's axes, negative, that scans have sliced, the outermost first.

        None if they are no whole axes in their order, from the first to the last of each.
        """
        dims = whole(self.path, self.shape).dims
        axes = [axis for axis, dim in enumerate(dims) if dim in self.layers]
        if self.layers and (self.turned or self.layers != tuple(dims[axis] for axis in axes)):
            return None
        return tuple(axis - len(dims) for axis in axes)


def whole(path: Path, shape: tuple[int, ...]) -> View:
    """A parameter as it is."""
    return View(path, shape, tuple((Factor(axis, size),) for axis, size in enumerate(shape)))


def inside_scan(view: View) -> View:
    """One turn's slice."""
    return view._replace(dims=view.dims[1:], layers=(*view.layers, view.dims[0]))


def joined(view: View, axis: int, size: int) -> View:
    """A view as a part of a longer array, along one axis."""
    return view._replace(dims=(*view.dims[:axis], (Factor(PART, size),), *view.dims[axis + 1 :]))


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """The form of ``shape`` that an operation on each number makes of one of the same rank."""
    sizes = (math.prod(factor.size for factor in dim) for dim in view.dims)
    axes = zip(view.dims, sizes, shape, strict=True)
    dims = (dim if old == new else (Factor(SPREAD, new),) for dim, old, new in axes)
    return view._replace(dims=tuple(dims))


def scaled(view: View, shape: tuple[int, ...], constant: tuple[int, ...] = ()) -> View:
    """The form of ``shape`` times a constant, of the same rank or a scalar."""
    dims = [dim for dim, size in zip(view.dims, constant, strict=False) if size > 1]
    differs = {factor.axis for dim in dims for factor in dim}
    return broadcast(view, shape)._replace(scaled=(view.scaled or frozenset()) | differs)


def looked_up(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    """What a gather takes out of a form: the same at every place, and whole along other axes."""
    numbers, before = equation.params["dimension_numbers"], equation.invars[0].aval.shape
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(before)) if axis not in gone]
    dims: list[tuple[Factor, ...]] = [(Factor(SPREAD, size),) for size in shape]
    for place, axis in zip(numbers.offset_dims, kept, strict=True):
        size = shape[place]
        dims[place] = view.dims[axis] if size == before[axis] else (Factor(PART, size),)
    return view._replace(dims=tuple(dims))


def viewed(view: View, equation: Any, shape: tuple[int, ...]) -> View | None:
    """The form of ``shape`` that an equation makes of a form; None where it is a form no more."""
    params, before = equation.params, equation.invars[0].aval.shape
    dims = list(view.dims)
    match equation.primitive.name:
        case "transpose":
            dims = [dims[axis] for axis in params["permutation"]]
        case "squeeze":
            dims = [dim for axis, dim in enumerate(dims) if axis not in params["dimensions"]]
        case "broadcast_in_dim":
            dims = [(Factor(SPREAD, size),) for size in shape]
            for axis, place in enumerate(params["broadcast_dimensions"]):
                if shape[place] == before[axis]:
                    dims[place] = view.dims[axis]
        case "slice" | "dynamic_slice" | "split":
            parts = [(Factor(PART, size),) for size in shape]
            dims = [parts[i] if shape[i] != before[i] else dims[i] for i in range(len(shape))]
        case "reshape":
            # `vmap` of a convolution transposes its kernel with the reshape.
            order = params["dimensions"] or range(len(dims))
            return _reshaped(view._replace(dims=tuple(dims[axis] for axis in order)), shape)
        case "rev":
            return view._replace(turned=True)
        case name if name not in _SAME.split():
            return None
    return view._replace(dims=tuple(dims))


def _reshaped(view: View, shape: tuple[int, ...]) -> View | None:
    """Factors in their order, split where an axis ends inside one."""
    factors = [factor for dim in view.dims for factor in dim]
    # Axes of size 1 may stand anywhere: they go to the new ones of size 1, in their order.
    ones = [factor for factor in factors if factor.size == 1]
    rest = [factor for factor in factors if factor.size != 1][::-1]
    dims: list[tuple[Factor, ...]] = []
    for size in shape:
        taken: list[Factor] = [ones.pop(0)] if size == 1 and ones else []
        while (missing := size // math.prod(f.size for f in taken)) > 1:
            factor = rest.pop() if rest else Factor(PART, 0)
            size_of_part = math.gcd(factor.size, missing)
            if size_of_part not in (factor.size, missing) or not factor.size:
                return None
            if factor.size > missing:
                rest.append(factor._replace(size=factor.size // missing))
            step = factor.step * (factor.size // size_of_part)
            taken.append(factor._replace(size=size_of_part, step=step))
        dims.append(tuple(taken))
    return view._replace(dims=tuple(dims))
