"""One walk over a program: what each variable is, each kernel's products, and what is refused."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal

from jaxnorm._tracing import _equations as reading
from jaxnorm._tracing._values import (
    CONSTANT,
    INPUT,
    LOOPS,
    Body,
    Product,
    Step,
    Use,
    Value,
    Variable,
    is_checkpoint,
)
from jaxnorm._tracing._views import View, whole
from jaxnorm._trees._paths import Path

#: How the name of a jitted function starts that the walk notes and does not look into.
MARK = "jaxnorm_mark_"

_NAMES = (
    "add add_any and atan2 clamp concatenate div dynamic_update_slice eq gather ge gt le lt max "
    "min mul ne nextafter or pow rem scatter scatter_add scatter-add select_n sub xor"
)
#: What may be done to inputs with a parameter that is no kernel: a bias, a scale, a table.
_ELEMENTWISE = frozenset(_NAMES.split())
_PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")


class Walk:
    """One pass over a program, with what it has found.

    Attributes:
        uses: the products of kernels.
        refused: why a parameter is not understood.
        changed: the parameters of which something else is multiplied with the inputs.
        opened: the kernels whose product is in a call with a derivative of its own that is opened.
        met: the parameters that meet the inputs in something else than a product.
        sums: the parameters that are added to a product, one entry a sum.
        read: the parameters that anything else is made of.
        marks: what goes into each call that is a mark, by its name.
        constants: the values of the variables that are no input and no result.

    Args:
        kernels: the parameters that are followed to their products; None for all.
        constant: what the program's constants count as.
    """

    def __init__(self, kernels: Iterable[Path] | None, constant: Value) -> None:
        self._kernels = None if kernels is None else frozenset(kernels)
        self._constant = constant
        self._within: tuple[str, ...] = ()
        self.uses: list[Use] = []
        self.refused: dict[Path, str] = {}
        self.changed: set[Path] = set()
        self.opened: set[Path] = set()
        self.met: set[Path] = set()
        self.sums: list[Path] = []
        self.read: set[Path] = set()
        self.marks: list[tuple[str, Product | None]] = []
        self.constants: dict[object, Any] = {}

    def run(self, closed: ClosedJaxpr, operands: list[Variable]) -> Body:
        """A program's equations, and its results.

        A call is opened if it makes a layer's product or adds its bias; any other stays one
        equation, with its own rule of differentiation, as does one with such a rule that makes
        nothing after the product or the sum. A `jax.checkpoint` stays around its equations.
        """
        jaxpr = closed.jaxpr
        atoms = (*jaxpr.outvars, *(atom for equation in jaxpr.eqns for atom in equation.invars))
        reads = Counter(atom for atom in atoms if not isinstance(atom, Literal))
        env: dict[Any, Variable] = {}

        def write(names: Sequence[Any], variables: Iterable[Variable]) -> None:
            for name, (variable, value) in zip(names, variables, strict=True):
                alone = value if reads[name] == 1 else value._replace(product=None)
                env[name] = Variable(variable, alone)

        def read(atom: Any) -> Variable:
            return self._held(atom.val, CONSTANT) if isinstance(atom, Literal) else env[atom]

        write(jaxpr.constvars, [self._held(const, self._constant) for const in closed.consts])
        write(jaxpr.invars, operands)
        steps: list[Step] = []
        for equation in jaxpr.eqns:
            more, results = self._equation(equation, [read(atom) for atom in equation.invars])
            steps.extend(more)
            write(equation.outvars, results)
        return Body([name for name, _ in operands], steps, [read(atom) for atom in jaxpr.outvars])

    def _held(self, constant: Any, value: Value) -> Variable:
        variable = Variable(object(), value)
        self.constants[variable.name] = constant
        return variable

    def _equation(
        self, equation: Any, operands: list[Variable]
    ) -> tuple[list[Step], list[Variable]]:
        values = [variable.value for variable in operands]
        primitive, inner, body = equation.primitive.name, reading.body_of(equation, values), None
        last = primitive in (*_PRODUCTS, *reading.SUMS)
        name = str(equation.params.get("name", primitive))
        if name.startswith(MARK):
            self.marks.append((name.removeprefix(MARK), values[0].product))
            results = [INPUT]
        elif primitive in LOOPS:
            results, body = LOOPS[primitive](self._inside, equation, values)
        elif inner is not None and primitive != "shard_map":
            called = self.run(inner, operands)
            made, results = list(called.products()), called.values()
            own, last = primitive.startswith("custom"), _is_last(made, results)
            if any(not (own and (last or product.biased)) for product in made):
                self.opened.update(product.form.path for product in made if own)
                if is_checkpoint(equation):
                    after = [variable.name for variable in called.outputs]
                    return [Step(equation, called.inputs, after, body=called)], called.outputs
                return called.steps, called.outputs
        else:
            results = self._results(equation, values)
        outputs = [Variable(object(), value) for value in results]
        before, after = ([variable.name for variable in side] for side in (operands, outputs))
        makes = results[0].product if last else None
        return [
            Step(equation, before, after, makes, body, reading.added(equation, values, makes))
        ], outputs

    def _results(self, equation: Any, values: list[Value]) -> list[Value]:
        """What a primitive makes of parameters or products."""
        name = equation.primitive.name
        if name == "shard_map" and (body := reading.body_of(equation, values)):
            return self._inside(equation, body, values).values()
        meets = any(value.input for value in values)
        if not any(value.followed for value in values):
            return [INPUT if meets else CONSTANT] * len(equation.outvars)
        if name in ("device_put", "optimization_barrier"):
            return values
        if name in _PRODUCTS:
            return [self._product(equation, values)]
        if name in reading.SUMS and any(value.product for value in values):
            return [self._sum(equation, values)]
        if name == "concatenate" and not meets:
            return [reading.concatenated(equation, values)]
        if value := reading.multiplied(equation, values):
            return [value]
        seen = [reading.form_of(equation, values[0], out.aval.shape) for out in equation.outvars]
        return [value or self._plain(equation, values) for value in seen]

    def _inside(
        self, equation: Any, closed: ClosedJaxpr, values: list[Value], quiet: bool = False
    ) -> Body:
        """A body that is walked for itself: no product comes in or out."""
        walk = Walk(self._kernels, self._constant) if quiet else self
        outside, walk._within = walk._within, (*walk._within, equation.primitive.name)
        operands = [Variable(object(), value._replace(product=None)) for value in values]
        body = walk.run(closed, operands)
        walk._within = outside
        alone = [Variable(name, value._replace(product=None)) for name, value in body.outputs]
        return body._replace(outputs=alone)

    def _plain(self, equation: Any, values: list[Value]) -> Value:
        """What is something else than its operands."""
        found = reading.sources(values)
        meets = any(value.input for value in values)
        if meets and equation.primitive.name not in _ELEMENTWISE:
            self._refuse(found, f"goes into a {equation.primitive.name}")
        self.read.update(found)
        # What a kernel makes of constants is its product, and seen there.
        self.met.update(reading.sources([v for v in values if not v.product]) if meets else ())
        changed = reading.altered(equation, values)
        return Value(sources=frozenset() if meets else found, input=meets, altered=changed)

    def _sum(self, equation: Any, values: list[Value]) -> Value:
        """A product with its bias: parameters that are no kernels, or fewer constants."""
        shapes = [atom.aval.shape for atom in equation.invars]
        for i, j in ((0, 1), (1, 0)):
            product, other = values[i].product, values[j]
            few = shapes[j] != () and math.prod(shapes[j]) < math.prod(shapes[i])
            constant = not other.input and not self._kernel(other) and (other.sources or few)
            if product and not product.biased and constant:
                biased = product.with_bias(other.views)
                self.sums.extend(view.path for view in other.views)
                self.read.update(() if biased.bias else other.sources)
                return values[i]._replace(product=biased)
        return self._plain(equation, values)

    def _product(self, equation: Any, values: list[Value]) -> Value:
        found, sides = reading.sources(values), [i for i in (0, 1) if self._kernel(values[i])]
        meets = any(value.input for value in values)
        if not sides:
            paths = list(reading.altered_kernels(equation, values))
            said = "is changed by an input before it is multiplied with others, or looked up by one"
            self._refuse(paths, said)
            self.changed.update(paths)
            return self._plain(equation, values)
        result, kernel = INPUT if meets else Value(sources=found), values[sides[0]]
        if why := reading.no_kernels(equation, sides):
            self._refuse(found, why)
            self.changed.update(found if meets else ())
        elif meets and not kernel.views:
            self._refuse(found, "is changed before it is multiplied with the inputs")
            self.changed.update(found)
        else:
            uses = [self._use(equation, view, sides[0]) for view in kernel.views]
            whole_once = [use for use in uses if use.kernel.has_all(once=use.fan_in is None)]
            # Rows of different groups have different units in one place.
            if len(uses) == len(whole_once) == 1 and not reading.groups_of(equation):
                form = whole(uses[0].kernel.path, equation.outvars[0].aval.shape)
                return result._replace(product=Product(uses[0], form))
        return result

    def _kernel(self, value: Value) -> bool:
        """Whether a value is made of a kernel, as far as it is known what is one."""
        own = value.sources if self._kernels is None else value.sources & self._kernels
        return bool(own)

    def _use(self, equation: Any, view: View, side: int) -> Use:
        contracted, groups, places = reading.product_axes(equation, side)
        units = tuple(places[axis] for axis in sorted(places.keys() - view.spread()))
        in_groups = any(axis < groups for axis in units)
        use = Use(view, view.contracted(contracted), units, in_groups, self._within)
        if use.fan_in is None:
            joined = "is contracted along a part of an axis, or joined to others"
            self._refuse([view.path], joined)
        elif {axis - len(view.shape) for axis in view.scaled or ()} & {*use.fan_in}:
            said = "is multiplied by a constant that differs along its fan-in, a mask say"
            self._refuse([view.path], said)
            self.changed.add(view.path)
        self.uses.append(use)
        return use

    def _refuse(self, paths: Iterable[Path], reason: str) -> None:
        self.read.update(paths)
        for path in sorted(paths):
            self.refused.setdefault(path, reason)


def _is_last(made: list[Product], results: list[Value]) -> bool:
    """Whether a call's only result is what the only product or sum in it makes."""
    last = results[0].product
    return len(results) == len(made) == 1 and last is not None and made[0].use is last.use
