"""Abstract values: views of parameters, products of kernels, and functions of the inputs."""

import functools
import operator
from collections.abc import Iterable
from typing import NamedTuple

from jaxnorm._node import Axes
from jaxnorm._paths import Path
from jaxnorm._trace.views import Dim, Factor, View, whole


class Use(NamedTuple):
    """Product of a kernel with something else.

    Attributes:
        kernel: the view that is multiplied.
        fan_in: the kernel's axes, negative, that the product sums over; None for parts of axes.
        places: the axis of the product at which each axis of the kernel's view is, but for the
            contracted and the broadcast ones.
        groups: the number of the product's batch axes, which come first. Units there count groups
            of inputs, each with its own part of the kernel: the members of an ensemble, the heads
            of an attention.
        multiplies_inputs: True if the other operand depends on no parameter.
        within: the loops, branches and shard_maps around the product, the outermost first.
        side: the operand of the product that is the kernel.
    """

    kernel: View
    fan_in: Axes | None
    places: dict[int, int]
    groups: int
    multiplies_inputs: bool
    within: tuple[str, ...]
    side: int

    @property
    def in_groups(self) -> bool:
        """True if units also count groups of inputs."""
        return any(place < self.groups for place in self.places.values())

    @property
    def unit_axes(self) -> tuple[int, ...]:
        """The axes of the product that count units, in the order of the kernel's view."""
        return tuple(self.places[axis] for axis in sorted(self.places))

    @property
    def is_complete(self) -> bool:
        """True if the product has every number of the kernel."""
        return self.kernel.covers(once=self.fan_in is None)

    @property
    def keeps_units(self) -> bool:
        """True if the product has the kernel's units in the kernel's order, whatever its form.

        The axes of layers that scans slice are the kernel's first.
        """
        view, scanned = self.kernel, self.kernel.scanned_axes()
        if self.fan_in is None or scanned is None or not view.stacks_first:
            return False
        units = tuple(factor for axis in sorted(self.places) for factor in view.dims[axis])
        (order,) = view.with_dims([units]).strides((*self.fan_in, *scanned))
        return len(order) <= 1 and all(step == 1 for _, step in order)


class Product(NamedTuple):
    """Pre-activations of a layer that nothing else has read yet, without or with their bias.

    Attributes:
        use: the product.
        form: the current axes: factors of the kernel at its units, and further axes elsewhere.
        dims: the axes that the product was computed with.
        biased: True if a bias has been added.
        bias: the parameter that was added, if it has one value per channel, in the kernel's order.
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
    def has_bias_in_own_axes(self) -> bool:
        """True if a bias was added in the axes that the product was computed with."""
        return self.biased and self.form.dims == self.dims and not self.use.in_groups

    def viewed(self, form: View | None) -> "Product | None":
        """Returns the product in another form that still has every number once, in no reversal."""
        if form is None or any(f.axis < 0 and f.size > 1 for dim in form.dims for f in dim):
            return None
        return self._replace(form=form)

    @property
    def unit_axes(self) -> tuple[int, ...]:
        """The current axes that count units."""
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
        """Returns True if the bias has one value per channel, in the kernel's order.

        Axes of layers are the first ones, as code that meets stacks of biases takes them.
        """
        scanned = bias.scanned_axes()
        if len(bias.dims) != len(self.form.dims) or scanned is None or not bias.stacks_first:
            return False
        return bias.broadcast(self.form.sizes).strides(scanned) == self.unit_order()


class Units(NamedTuple):
    """Layer's output that may have been read already.

    Attributes:
        view: the kernel's axes where units are, and further axes elsewhere.
        multiplier: the bit of the variable that the kernel was multiplied with; 0 for a constant.
        grouped: the kernel's axes along which that variable varied too.
    """

    view: View
    multiplier: int
    grouped: frozenset[int]

    @classmethod
    def of(cls, product: Product, other: "Value") -> "Units":
        use = product.use
        axes = (axis for axis, place in use.places.items() if place < use.groups)
        return cls(product.form, other.variable, frozenset(use.kernel.own_axes(axes)))

    def viewed(self, view: View | None) -> "Units | None":
        return None if view is None else self._replace(view=view)


class Value(NamedTuple):
    """Abstract value of a variable.

    Attributes:
        views: the parameters that the variable is a view of; several after a concatenation.
        sources: the parameters that it is a function of, if it does not depend on the inputs.
        of_parameters: True if it depends on a parameter.
        of_inputs: True if it depends on the inputs.
        product: the layer's product that it is.
        altered: the parameters that it would be a view of but for elementwise operations.
        units: the layer whose output it is, perhaps shifted and scaled.
        by_constants: those of its sources that it depends on through products with constants alone.
        activation: True if it is an elementwise function of a layer's product.
        stopped: True if no gradient reaches the parameters through it.
        factors: those of its sources of which it is a multiple.
        number: the number that all its entries are, if it is known.
        stored: 1 if it is computed from arrays that the program has stored, and from no inputs; 2
            if from roots of them, as of variances.
        node: its index among the nodes of the program, if it depends on the inputs.
        variable: a bit of its own, if it depends on the inputs; views of one have the same.
        ancestors: the bits of the variables that it depends on, its own included.
    """

    views: tuple[View, ...] = ()
    sources: frozenset[Path] = frozenset()
    of_parameters: bool = False
    of_inputs: bool = False
    product: Product | None = None
    altered: tuple[View, ...] = ()
    units: "Units | None" = None
    by_constants: frozenset[Path] = frozenset()
    activation: bool = False
    stopped: bool = False
    factors: frozenset[Path] = frozenset()
    number: float | None = None
    stored: int = 0
    node: int | None = None
    variable: int = 0
    ancestors: int = 0

    def sliced_by_scan(self) -> "Value":
        views, altered = (
            tuple(view.sliced_by_scan() for view in several)
            for several in (self.views, self.altered)
        )
        units = self.units and self.units.viewed(self.units.view.sliced_by_scan())
        return self._replace(views=views, altered=altered, units=units)

    def after(self, values: Iterable["Value"]) -> "Value":
        """Returns the value with the ancestors of others, if it depends on the inputs."""
        ancestors = functools.reduce(operator.or_, (x.ancestors for x in values), self.ancestors)
        return self._replace(ancestors=ancestors) if self.of_inputs else self

    @property
    def is_followed(self) -> bool:
        """True if the variable contains a parameter or a product."""
        return bool(self.sources or self.product or self.altered or self.units)

    @property
    def unmultiplied(self) -> frozenset[Path]:
        """The sources that it depends on in another way than through products with constants."""
        return self.sources - self.by_constants

    @property
    def is_constant(self) -> bool:
        """True if the variable depends on neither parameters nor inputs."""
        return not (self.of_inputs or self.sources)


def parameter(path: Path, shape: tuple[int, ...]) -> Value:
    """Returns the abstract value of a parameter."""
    paths = frozenset([path])
    return Value((whole(path, shape),), paths, of_parameters=True, factors=paths)


CONSTANT, INPUT = Value(), Value(of_inputs=True)


def join(one: Value, other: Value) -> Value:
    """Returns the abstract value of a variable that may have either value."""
    if one == other:
        return one
    of_parameters = one.of_parameters or other.of_parameters
    if not (one.of_inputs or other.of_inputs):
        factors = one.factors & other.factors
        paths = one.sources | other.sources
        by_constants = paths - one.unmultiplied - other.unmultiplied
        return Value(
            sources=paths, of_parameters=of_parameters, factors=factors, by_constants=by_constants
        )
    views = dict.fromkeys((*one.views, *one.altered, *other.views, *other.altered))
    return INPUT._replace(
        of_parameters=of_parameters,
        altered=tuple(views),
        activation=one.activation and other.activation,
        ancestors=one.ancestors | other.ancestors,
    )


def sources(values: Iterable[Value]) -> frozenset[Path]:
    """Returns the parameters that any of the values is a function of."""
    return frozenset(path for value in values for path in value.sources)
