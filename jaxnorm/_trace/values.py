"""Abstract values: parameters in other forms, products of kernels, and functions of the inputs."""

import math
from collections.abc import Iterable
from typing import NamedTuple

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
    """

    path: Path
    shape: tuple[int, ...]
    dims: tuple[Dim, ...]
    scanned: tuple[Dim, ...] = ()
    scaled: frozenset[int] | None = None
    added: bool = False

    @property
    def is_unchanged(self) -> bool:
        """True if the axes are those of the original array, in their order."""
        return (*self.scanned, *self.dims) == whole(self.path, self.shape).dims

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

    def scanned_axes(self) -> Axes | None:
        """Returns the original axes, negative, that scans have sliced, the outermost first.

        None unless each is a whole axis, sliced from its first index to its last.
        """
        dims = whole(self.path, self.shape).dims
        axes = [axis for axis, dim in enumerate(dims) if dim in self.scanned]
        if self.scanned != tuple(dims[axis] for axis in axes):
            return None
        return tuple(axis - len(dims) for axis in axes)

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
        sizes = (math.prod(factor.size for factor in dim) for dim in self.dims)
        axes = zip(self.dims, sizes, shape, strict=True)
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


class Use(NamedTuple):
    """Product of a kernel with something else.

    Attributes:
        kernel: the view that is multiplied.
        fan_in: the kernel's axes, negative, that the product sums over; None for parts of axes.
        places: the axis of the product at which each axis of the kernel's view is, but for the
            contracted and the broadcast ones.
        in_groups: True if units also count groups of inputs, each with its own part of the kernel:
            the members of an ensemble, the heads of an attention.
        meets_inputs: True if the other operand depends on no parameter.
        within: the loops, branches and shard_maps around the product, the outermost first.
    """

    kernel: View
    fan_in: Axes | None
    places: dict[int, int]
    in_groups: bool
    meets_inputs: bool
    within: tuple[str, ...]

    @property
    def units(self) -> tuple[int, ...]:
        """The axes of the product that count units, in the order of the kernel's view."""
        return tuple(self.places[axis] for axis in sorted(self.places))

    @property
    def is_complete(self) -> bool:
        """True if the product has every number of the kernel."""
        return self.kernel.covers(once=self.fan_in is None)


class Product(NamedTuple):
    """Pre-activations of a layer that nothing else has read yet, without or with their bias.

    Attributes:
        use: the product.
        form: the current axes: factors of the kernel at its units, and further axes elsewhere.
        dims: the axes that the product was computed with.
        biased: True if a bias has been added.
        bias: the parameter that was added, if it has one value per unit, in the kernel's order.
    """

    use: Use
    form: View
    dims: tuple[Dim, ...]
    biased: bool = False
    bias: Path | None = None

    @classmethod
    def of(cls, use: Use, shape: tuple[int, ...]) -> "Product":
        of_kernel = {place: use.kernel.dims[axis] for axis, place in use.places.items()}
        ndim, sizes = len(use.kernel.shape), enumerate(shape)
        dims = tuple(of_kernel.get(i, (Factor(ndim + i, size),)) for i, size in sizes)
        return cls(use, View(use.kernel.path, use.kernel.shape, dims), dims)

    @property
    def is_apart(self) -> bool:
        """True if a bias was added in the axes that the product was computed with."""
        return self.biased and self.form.dims == self.dims and not self.use.in_groups

    def viewed(self, form: View | None) -> "Product | None":
        """Returns the product in another form that still has every number once, in no reversal."""
        if form is None or any(f.axis < 0 and f.size > 1 for dim in form.dims for f in dim):
            return None
        return self._replace(form=form)

    def unit_axes(self) -> tuple[int, ...]:
        """Returns the current axes that count units."""
        ndim, dims = len(self.form.shape), enumerate(self.form.dims)
        return tuple(i for i, dim in dims if any(0 <= f.axis < ndim for f in dim))

    def unit_order(self) -> list[list[tuple[int, int]]]:
        """Returns the strides of each current axis among the units in the kernel's order."""
        scanned = self.use.kernel.scanned_axes()
        return self.form.strides((*(self.use.fan_in or ()), *(scanned or ())))

    def with_bias(self, views: tuple[View, ...]) -> "Product":
        """Returns the sum with a bias: views of parameters, or none for a constant."""
        bias = views[0] if len(views) == 1 and views[0].scaled is None else None
        per_unit = bias is not None and bias.covers(once=False) and self._has_order_of(bias)
        return self._replace(biased=True, bias=bias.path if bias and per_unit else None)

    def _has_order_of(self, bias: View) -> bool:
        """Returns True if the bias has one value per unit, in the order of the kernel's units."""
        if len(bias.dims) != len(self.form.dims) or bias.scanned_axes() is None:
            return False
        sizes = tuple(math.prod(factor.size for factor in dim) for dim in self.form.dims)
        return bias.broadcast(sizes).strides(bias.scanned_axes()) == self.unit_order()


class Value(NamedTuple):
    """Abstract value of a variable.

    Attributes:
        views: the parameters that the variable is a view of; several after a concatenation.
        sources: the parameters that it is a function of, if it does not depend on the inputs.
        depends: True if it depends on a parameter.
        input: True if it depends on the inputs.
        product: the layer's product that it is.
        altered: the parameters that it would be a view of but for elementwise operations.
        activation: True if it is an elementwise function of a layer's product.
        stopped: True if no gradient reaches the parameters through it.
    """

    views: tuple[View, ...] = ()
    sources: frozenset[Path] = frozenset()
    depends: bool = False
    input: bool = False
    product: Product | None = None
    altered: tuple[View, ...] = ()
    activation: bool = False
    stopped: bool = False

    def sliced_by_scan(self) -> "Value":
        views, altered = (
            tuple(view.sliced_by_scan() for view in several)
            for several in (self.views, self.altered)
        )
        return self._replace(views=views, altered=altered)

    @property
    def is_followed(self) -> bool:
        """True if the variable contains a parameter or a product."""
        return bool(self.sources or self.product or self.altered)

    @property
    def is_constant(self) -> bool:
        """True if the variable depends on neither parameters nor inputs."""
        return not (self.input or self.sources)


def parameter(path: Path, shape: tuple[int, ...]) -> Value:
    """Returns the abstract value of a parameter."""
    return Value((whole(path, shape),), frozenset([path]), depends=True)


CONSTANT, INPUT = Value(), Value(input=True)


def join(one: Value, other: Value) -> Value:
    """Returns the abstract value of a variable that may have either value."""
    if one == other:
        return one
    depends = one.depends or other.depends
    if not (one.input or other.input):
        return Value(sources=one.sources | other.sources, depends=depends)
    views = dict.fromkeys((*one.views, *one.altered, *other.views, *other.altered))
    activation = one.activation and other.activation
    return INPUT._replace(depends=depends, altered=tuple(views), activation=activation)


def sources(values: Iterable[Value]) -> frozenset[Path]:
    """Returns the parameters that any of the values is a function of."""
    return frozenset(path for value in values for path in value.sources)
