"""The axes of a parameter or a product, through whatever only shows it in another form."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxnorm._node import Axes
from jaxnorm._paths import Path

#: In the place of an axis: numbers that are no axis of the parameter, or a part of one.
SPREAD, PART = -1, -2


class Factor(NamedTuple):
    """A parameter's axis, or what a reshape has made a factor of its size."""

    axis: int
    size: int


class View(NamedTuple):
    """A parameter, or a layer's product, in some form.

    Attributes:
        path: the parameter's path; a product's is its kernel's.
        shape: its own shape.
        dims: for each axis of the form, the factors that it counts, the slowest first.
        turned: whether an axis has been reversed.
    """

    path: Path
    shape: tuple[int, ...]
    dims: tuple[tuple[Factor, ...], ...]
    turned: bool = False

    def entire(self) -> bool:
        """Whether every number is in the form, and once."""
        spread = any(f.axis < 0 and f.size > 1 for dim in self.dims for f in dim)
        return not spread and not self.turned

    def contracted(self, dims: tuple[int, ...]) -> Axes | None:
        """The parameter's axes, negative, that a sum over these axes of the form covers.

        None if it covers a part of an axis, or sums what is the same number many times.
        """
        factors = [factor for dim in dims for factor in self.dims[dim]]
        if any(f.axis == PART or (f.axis == SPREAD and f.size > 1) for f in factors):
            return None
        covered = {f.axis: 1 for f in factors if f.axis >= 0}
        for factor in factors:
            if factor.axis >= 0:
                covered[factor.axis] *= factor.size
        if any(size != self.shape[axis] for axis, size in covered.items()):
            return None
        return tuple(sorted(axis - len(self.shape) for axis in covered))


#: ``(view, equation, shape of the result) -> its view``, or None where it is a form no more.
Rule = Callable[[View, Any, tuple[int, ...]], View | None]


def whole(path: Path, shape: tuple[int, ...]) -> View:
    """A parameter as it is."""
    return View(path, shape, tuple((Factor(axis, size),) for axis, size in enumerate(shape)))


def inside_scan(view: View) -> View:
    """One step's slice: the stacked axis is gone."""
    return view._replace(dims=view.dims[1:])


def joined(view: View, axis: int, size: int) -> View:
    """A view as a part of a longer array, along one axis."""
    return _with_dim(view, axis, (Factor(PART, size),))


def _same(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    del equation, shape
    return view


def _transposed(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    del shape
    order = equation.params["permutation"]
    return view._replace(dims=tuple(view.dims[axis] for axis in order))


def _squeezed(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    del shape
    gone = equation.params["dimensions"]
    return view._replace(dims=tuple(d for axis, d in enumerate(view.dims) if axis not in gone))


def _broadcast(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    before = equation.invars[0].aval.shape
    dims: list[tuple[Factor, ...]] = [(Factor(SPREAD, size),) for size in shape]
    for axis, (place, size) in enumerate(
        zip(equation.params["broadcast_dimensions"], before, strict=True)
    ):
        if shape[place] == size:
            dims[place] = view.dims[axis]
    return view._replace(dims=tuple(dims))


def _turned(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    del equation, shape
    return view._replace(turned=True)


def _sliced(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    whole_shape = equation.invars[0].aval.shape
    for axis, (before, after) in enumerate(zip(whole_shape, shape, strict=True)):
        if before != after:
            view = _with_dim(view, axis, (Factor(PART, after),))
    return view


def _reshaped(view: View, equation: Any, shape: tuple[int, ...]) -> View | None:
    """Factors in their order, split where an axis ends inside one."""
    del equation
    factors = [factor for dim in view.dims for factor in dim]
    # Axes of size 1 may stand anywhere: they go to the new ones of size 1, in their order.
    ones = [factor for factor in factors if factor.size == 1]
    rest = [factor for factor in factors if factor.size != 1][::-1]
    dims: list[tuple[Factor, ...]] = []
    for size in shape:
        taken: list[Factor] = [ones.pop(0)] if size == 1 and ones else []
        while (missing := size // math.prod(f.size for f in taken)) > 1:
            if not rest:
                return None
            factor = rest.pop()
            if factor.size > missing:
                if factor.size % missing:
                    return None
                rest.append(Factor(factor.axis, factor.size // missing))
                factor = Factor(factor.axis, missing)
            elif missing % factor.size:
                return None
            taken.append(factor)
        dims.append(tuple(taken))
    return view._replace(dims=tuple(dims))


def _with_dim(view: View, axis: int, dim: tuple[Factor, ...]) -> View:
    return view._replace(dims=(*view.dims[:axis], dim, *view.dims[axis + 1 :]))


#: What leaves a parameter itself, by the primitive's name; the first operand is the parameter.
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "convert_element_type",
                "copy",
                "copy_p",
                "name",
                "pcast",
                "pvary",
                "reduce_precision",
                "reshard",
                "sharding_constraint",
            ),
            _same,
        ),
        "broadcast_in_dim": _broadcast,
        "dynamic_slice": _sliced,
        "reshape": _reshaped,
        "rev": _turned,
        "slice": _sliced,
        "split": _sliced,
        "squeeze": _squeezed,
        "transpose": _transposed,
    }
)
