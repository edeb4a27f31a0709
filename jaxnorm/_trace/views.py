"""Views: arrays with the numbers of another array in another arrangement, and their primitives."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxnorm._node import Axes
from jaxnorm._paths import Path

#: In the place of an axis: equal numbers along the whole axis, or a part of an axis.
BROADCAST, PARTIAL = -1, -2


class Factor(NamedTuple):
    """Index of ``size`` values along one axis of an array, ``step`` apart."""

    axis: int
    size: int
    step: int = 1
    reversed: bool = False


#: The factors of one axis of a view, the slowest first.
Dim = tuple[Factor, ...]


class View(NamedTuple):
    """Array whose numbers are those of another array in another arrangement.

    Attributes:
        path: the path of the parameter; for a product, that of its kernel.
        shape: the shape of the original array.
        dims: the factors of each axis of the view.
        scanned: the factors of the axes that scans have sliced, the outermost first.
        scaled: the original axes along which the constants vary that multiply the parameter; None
            without such a constant.
        added: True if an input has been added to it.
        rounded: True if the numbers were rounded to a few levels.
    """

    path: Path
    shape: tuple[int, ...]
    dims: tuple[Dim, ...]
    scanned: tuple[Dim, ...] = ()
    scaled: frozenset[int] | None = None
    added: bool = False
    rounded: bool = False

    @property
    def is_unchanged(self) -> bool:
        """True if the axes are those of the original array, in their order."""
        return (*self.scanned, *self.dims) == whole(self.path, self.shape).dims

    @property
    def sizes(self) -> tuple[int, ...]:
        """The length of each axis of the view."""
        return tuple(math.prod(factor.size for factor in dim) for dim in self.dims)

    def covers(self, once: bool) -> bool:
        """Returns True if every number of the original is in the view, and only ``once``."""
        factors = [factor for dim in (*self.scanned, *self.dims) for factor in dim]
        size = math.prod(factor.size for factor in factors if factor.axis >= 0)
        others = {f.axis for f in factors if f.axis == PARTIAL or f.size > 1}
        excluded = {PARTIAL, BROADCAST} if once else {PARTIAL}
        return size == math.prod(self.shape) and not others & excluded

    def broadcast_axes(self) -> set[int]:
        """Returns the axes of the view along which all numbers are equal."""
        return {i for i, dim in enumerate(self.dims) if {f.axis for f in dim} == {BROADCAST}}

    def own_axes(self, axes: Iterable[int]) -> set[int]:
        """Returns the original axes that these axes of the view have factors of."""
        factors = (factor for axis in axes for factor in self.dims[axis] if factor.size > 1)
        return {factor.axis for factor in factors} & {*range(len(self.shape))}

    def whole_axes(self, axes: Iterable[int]) -> set[int]:
        """Returns the original axes all of whose numbers are along these axes of the view."""
        axes = tuple(axes)
        factors = [factor for axis in axes for factor in self.dims[axis]]
        sizes = {a: math.prod(f.size for f in factors if f.axis == a) for a in self.own_axes(axes)}
        return {axis for axis, size in sizes.items() if size == self.shape[axis]}

    def added_axes(self, axes: Iterable[int]) -> set[int]:
        """Returns those of these axes of the view that are not of the original array alone."""
        own = range(len(self.shape))
        return {a for a in axes if any(f.size > 1 and f.axis not in own for f in self.dims[a])}

    def varies(self, axes: Iterable[int]) -> bool:
        """Returns True if the numbers differ along any of these axes of the view."""
        return any(f.axis != BROADCAST and f.size > 1 for axis in axes for f in self.dims[axis])

    def contracted(self, axes: Iterable[int]) -> Axes | None:
        """Returns the original axes, negative, that a sum over these axes of the view covers.

        None if the sum covers a part of an axis, or has one number as several terms.
        """
        factors = [factor for axis in axes for factor in self.dims[axis]]
        covered = {f.axis: math.prod(g.size for g in factors if g.axis == f.axis) for f in factors}
        sizes = dict(enumerate(self.shape)) | {BROADCAST: 1}
        if any(size != sizes.get(axis) for axis, size in covered.items()):
            return None
        return tuple(sorted(axis - len(self.shape) for axis in covered if axis >= 0))

    def whole_axis(self, axis: int) -> int | None:
        """Returns the original axis, negative, that an axis of the view is; None if it is none."""
        factors = [factor for factor in self.dims[axis] if factor.size > 1]
        if len(factors) != 1 or factors[0].axis < 0:
            return None
        original = factors[0].axis
        whole = factors[0].size == self.shape[original]
        return original - len(self.shape) if whole else None

    def scanned_axes(self) -> Axes | None:
        """Returns the original axes, negative, that scans have sliced, the outermost first.

        None unless each is a whole axis, sliced from its first index to its last.
        """
        dims = whole(self.path, self.shape).dims
        axes = [axis for axis, dim in enumerate(dims) if dim in self.scanned]
        if self.scanned != tuple(dims[axis] for axis in axes):
            return None
        return tuple(axis - len(dims) for axis in axes)

    @property
    def stacks_first(self) -> bool:
        """True if the axes that scans have sliced, each whole and in order, come first."""
        axes, ndim = self.scanned_axes(), len(self.shape)
        return axes is not None and axes == tuple(range(-ndim, len(axes) - ndim))

    def strides(self, without: Axes | None) -> list[list[tuple[int, int]]]:
        """Returns, for each axis of the view, its sizes and strides in a flattened array.

        The flattened array is the original one without some of its axes, negative. Factors that are
        adjacent in memory are merged, so that equal lists mean equal orders.
        """
        steps, step = [0] * len(self.shape), 1
        for axis in range(-1, -len(self.shape) - 1, -1):
            if axis not in (without or ()):
                steps[axis], step = step, step * self.shape[axis]
        return [_merged_strides(dim, steps) for dim in self.dims]

    def with_dims(self, dims: Iterable[Dim]) -> "View":
        return self._replace(dims=tuple(dims))

    def reshaped(self, shape: tuple[int, ...]) -> "View | None":
        """Returns the view of another shape; None if an axis would end inside a factor."""
        factors = [factor for dim in self.dims for factor in dim]
        # Axes of size 1 may stand anywhere: they become the new ones of size 1, in their order.
        ones = [factor for factor in factors if factor.size == 1]
        queue = [factor for factor in factors if factor.size != 1][::-1]
        dims: list[Dim] = []
        for size in shape:
            dim: list[Factor] = [ones.pop(0)] if size == 1 and ones else []
            while (missing := size // math.prod(f.size for f in dim)) > 1:
                outer = _split(queue, missing)
                if outer is None:
                    return None
                dim.append(outer)
            dims.append(tuple(dim))
        return self.with_dims(dims)

    def broadcast(self, shape: tuple[int, ...]) -> "View":
        """Returns the view after an elementwise operation whose result has this shape."""
        axes = zip(self.dims, self.sizes, shape, strict=True)
        return self.with_dims(
            d if old == new else (Factor(BROADCAST, new),) for d, old, new in axes
        )

    def times_constant(self, shape: tuple[int, ...], constant: tuple[int, ...] = ()) -> "View":
        """Returns the view times a constant of the same rank, or a scalar."""
        dims = [dim for dim, size in zip(self.dims, constant, strict=False) if size > 1]
        varying = {factor.axis for dim in dims for factor in dim}
        return self.broadcast(shape)._replace(scaled=(self.scaled or frozenset()) | varying)

    def sliced_by_scan(self) -> "View":
        return self._replace(dims=self.dims[1:], scanned=(*self.scanned, self.dims[0]))


def whole(path: Path, shape: tuple[int, ...]) -> View:
    """Returns the view that is the array itself."""
    return View(path, shape, tuple((Factor(axis, size),) for axis, size in enumerate(shape)))


def _split(queue: list[Factor], missing: int) -> Factor | None:
    """Takes the slowest factor from the queue, or its slower part of size ``missing``."""
    factor = queue.pop() if queue else Factor(PARTIAL, 0)
    size = math.gcd(factor.size, missing)
    if size not in (factor.size, missing) or not factor.size:
        return None
    if factor.size > missing:
        queue.append(factor._replace(size=factor.size // missing))
    return factor._replace(size=size, step=factor.step * (factor.size // size))


def _merged_strides(dim: Dim, steps: list[int]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for factor in (factor for factor in dim if factor.size > 1):
        step = steps[factor.axis] * factor.step if 0 <= factor.axis < len(steps) else 0
        step = -step if factor.reversed else step
        if merged and merged[-1][1] == step * factor.size:
            merged[-1] = (merged[-1][0] * factor.size, step)
        else:
            merged.append((factor.size, step))
    return merged


def _transposed(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    return view.with_dims(view.dims[axis] for axis in equation.params["permutation"])


def _squeezed(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    removed = equation.params["dimensions"]
    return view.with_dims(dim for axis, dim in enumerate(view.dims) if axis not in removed)


def _broadcast(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    before = equation.invars[0].aval.shape
    dims: list[Dim] = [(Factor(BROADCAST, size),) for size in shape]
    for axis, place in enumerate(equation.params["broadcast_dimensions"]):
        if shape[place] == before[axis]:
            dims[place] = view.dims[axis]
    return view.with_dims(dims)


def _sliced(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    before = equation.invars[0].aval.shape
    axes = zip(view.dims, before, shape, strict=True)
    return view.with_dims(d if old == new else (Factor(PARTIAL, new),) for d, old, new in axes)


def _reshaped(view: View, equation: Any, shape: tuple[int, ...]) -> View | None:
    # `vmap` of a convolution transposes its kernel with the reshape.
    order = equation.params["dimensions"] or range(len(view.dims))
    return view.with_dims(view.dims[axis] for axis in order).reshaped(shape)


def _reversed(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    def turned(dim: Dim) -> Dim:
        return tuple(factor._replace(reversed=not factor.reversed) for factor in dim)

    axes = equation.params["dimensions"]
    return view.with_dims(turned(d) if i in axes else d for i, d in enumerate(view.dims))


def _cast(view: View, equation: Any, shape: tuple[int, ...]) -> View | None:
    """A cast to integers is no view; one to 8 bits or fewer rounds."""
    dtypes = equation.invars[0].aval.dtype, equation.params["new_dtype"]
    if not all(jnp.issubdtype(dtype, jnp.inexact) for dtype in dtypes):
        return None
    before, after = (jnp.finfo(dtype).bits for dtype in dtypes)
    return view._replace(rounded=True) if after < min(before, 16) else view


def _reduced(view: View, equation: Any, shape: tuple[int, ...]) -> View:
    """Rounds if fewer bits are left than bfloat16 has."""
    return view._replace(rounded=view.rounded or equation.params["mantissa_bits"] < 7)


#: Primitives that take some of the entries of their first operand.
SLICES = ("slice", "dynamic_slice", "split")
_IDENTITIES = "copy copy_p name pcast pvary reshard sharding_constraint stop_gradient"

#: ``(view, equation, shape of the result) -> view``; None for a result that is no view.
VIEWS: dict[str, Callable[[View, Any, tuple[int, ...]], View | None]] = {
    "transpose": _transposed,
    "squeeze": _squeezed,
    "broadcast_in_dim": _broadcast,
    **dict.fromkeys(SLICES, _sliced),
    "reshape": _reshaped,
    "rev": _reversed,
    "convert_element_type": _cast,
    "reduce_precision": _reduced,
    **dict.fromkeys(_IDENTITIES.split(), lambda view, equation, shape: view),
}
