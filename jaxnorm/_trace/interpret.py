"""Abstract interpreter: one pass over a model's jaxpr, which can be run again with other products.

Calls are inlined, and scans keep the body of one turn.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import PyTree

from jaxnorm._checks import check_function, check_patterns
from jaxnorm._paths import Path, is_entry, named_entries
from jaxnorm._trace.constants import known_number
from jaxnorm._trace.facts import Facts, Mark
from jaxnorm._trace.primitives import PRODUCTS, SUMS
from jaxnorm._trace.replay import Collected, Layer, Place, Replace, Replay, scan_counts
from jaxnorm._trace.rules import transfer
from jaxnorm._trace.values import CONSTANT, INPUT, Value, join, parameter, sources
from jaxnorm._trace.views import VIEWS

#: ``apply(params, *inputs)``: the model as a function of its plain parameters.
Apply = Callable[..., Any]

#: Prefix of the names, by `jax.ad_checkpoint.checkpoint_name`, of values that are recorded.
MARK = "jaxnorm_mark_"

#: The parameters of a call that hold its body.
_BODIES = ("jaxpr", "call_jaxpr")


class Traced(NamedTuple):
    """Traced function, of which nothing is known yet.

    Attributes:
        closed: its jaxpr.
        paths: its parameters, which are the first arguments.
        arguments: its parameters and inputs.
        structure: the structure of its result.
    """

    closed: ClosedJaxpr
    paths: list[Path]
    arguments: list[Any]
    structure: Any


class Program(NamedTuple):
    """Interpreted function.

    Attributes:
        closed: its jaxpr.
        facts: what the interpreter collected about its parameters.
        layers: its products and their biases, in execution order.
        bodies: the inlined calls, and the scans with products inside.
        calls: all calls and scans, inlined or not.
        results: the abstract values of its results.
        paths: its parameters, which are the first arguments.
        arguments: its parameters and inputs.
        structure: the structure of its result.
    """

    closed: ClosedJaxpr
    facts: Facts
    layers: dict[Place, Layer]
    bodies: dict[Place, ClosedJaxpr]
    calls: dict[Place, ClosedJaxpr]
    results: list[Value]
    paths: list[Path]
    arguments: list[Any]
    structure: Any

    def read(self) -> set[Path]:
        """Returns the parameters that are read elsewhere than in products and as their biases."""
        return self.facts.read | sources(self.results)

    def result_nodes(self) -> list[int]:
        """Returns the nodes of the results that depend on the inputs."""
        return [value.node for value in self.results if value.node is not None]

    def parameters(self) -> dict[Path, Any]:
        """Returns the parameters by path."""
        return dict(zip(self.paths, self.arguments, strict=False))

    def with_parameters(self, values: dict[Path, Any]) -> "Program":
        """Returns the program at other values, of equal or wider types, of some parameters."""
        parameters = (self.parameters() | values).values()
        return self._replace(arguments=[*parameters, *self.arguments[len(self.paths) :]])

    def at(self, params: PyTree, inputs: tuple[Any, ...]) -> "Program":
        """Returns the program at other parameters and inputs, of the same shapes."""
        entries = dict(named_entries(params))
        arrays = jax.tree.leaves([x for x in inputs if not is_flag(x)])
        return self._replace(arguments=[*(entries[path] for path in self.paths), *arrays])

    def run(self, replace: Replace) -> tuple[PyTree, Collected]:
        """Returns the function's result, with ``replace`` at each product, and the collected."""
        replay = Replay(self.layers, self.bodies, replace)
        results, collected = replay.run(self.closed, self.arguments, {}, (), ())
        return jax.tree.unflatten(self.structure, results), collected


def trace(
    apply: Apply,
    params: PyTree,
    inputs: tuple[Any, ...],
    kernels: Iterable[Path] | None = None,
    as_inputs: Sequence[str] = (),
    nodes: bool = False,
) -> Program:
    """Interprets ``apply(params, *inputs)``.

    Args:
        apply: a function of plain parameters and of the inputs.
        params: arrays, or their shapes; other leaves stay as they are.
        inputs: arrays, their shapes, and flags: Python values that the function may branch on.
        kernels: the parameters that count as kernels; None for every one that is multiplied.
        as_inputs: regular expressions, searched for in the paths, of parameters that count as
            inputs.
        nodes: record the graph of the variables that depend on the inputs.
    """
    check_patterns(as_inputs, "as_inputs")
    return interpreted(traced(apply, params, inputs), kernels, as_inputs, nodes)


def interpreted(
    program: Traced | Program,
    kernels: Iterable[Path] | None = None,
    as_inputs: Sequence[str] = (),
    nodes: bool = False,
) -> Program:
    """Interprets a program, as `trace` with these arguments does, without tracing it."""
    closed, parameters, arguments = program.closed, program.paths, program.arguments
    facts = Facts(None if kernels is None else frozenset(kernels), nodes=[] if nodes else None)
    paths = [*parameters, *(None for _ in arguments[len(parameters) :])]

    def value(path: Path | None, variable: Any) -> Value:
        if path is not None and not any(re.search(pattern, str(path)) for pattern in as_inputs):
            return parameter(path, variable.aval.shape)
        name = "input" if path is None else "parameter"
        return facts.recorded(facts.as_variable(INPUT, variable, []), name, [], variable)

    values = list(map(value, paths, closed.jaxpr.invars))
    # Without inputs the constants are what kernels meet.
    interpreter = _Interpreter(facts, CONSTANT if len(paths) > len(parameters) else INPUT)
    results = interpreter.run(closed, values, ())
    layers, bodies, calls = interpreter.layers, interpreter.bodies, interpreter.calls
    structure = program.structure
    return Program(closed, facts, layers, bodies, calls, results, parameters, arguments, structure)


def traced(apply: Apply, params: PyTree, inputs: tuple[Any, ...]) -> Traced:
    """Traces a model; the arguments are the parameters in their order, then the inputs."""
    check_function(apply, "apply", "apply(params, *inputs)")
    entries, structure = dict(named_entries(params)), jax.tree.structure(params, is_leaf=is_entry)
    arrays = {path: entry for path, entry in entries.items() if hasattr(entry, "shape")}
    leaves = list(arrays.values())

    def run(leaves: list[Any], *inputs: Any) -> Any:
        traced = entries | dict(zip(arrays, leaves, strict=True))
        return apply(jax.tree.unflatten(structure, list(traced.values())), *inputs)

    flags = [i for i, x in enumerate(inputs) if is_flag(x)]
    make = jax.make_jaxpr(run, return_shape=True, static_argnums=[i + 1 for i in flags])
    closed, shape = make(leaves, *inputs)
    arguments = jax.tree.leaves((leaves, [x for i, x in enumerate(inputs) if i not in flags]))
    return Traced(closed, [*arrays], arguments, jax.tree.structure(shape))


def is_flag(x: Any) -> bool:
    """Returns True for a Python value that a model may branch on."""
    return isinstance(x, (bool, int, float, str)) or x is None


def compiled(function: Callable[..., Any], params: PyTree, inputs: tuple[Any, ...]) -> Any:
    """Returns ``function(params, *inputs)`` of a compiled call; flags are not traced."""
    return jitted(function, inputs)(params, *inputs)


def jitted(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Returns ``function(params, *inputs)`` under jit, of which flags are static arguments."""
    return jax.jit(function, static_argnums=[i + 1 for i, x in enumerate(inputs) if is_flag(x)])


class _Interpreter:
    """Pass over a jaxpr with abstract values; ``constant`` is the value of its constants."""

    def __init__(self, facts: Facts, constant: Value) -> None:
        self.facts = facts
        self.constant = constant
        self.layers: dict[Place, Layer] = {}
        self.bodies: dict[Place, ClosedJaxpr] = {}
        self.calls: dict[Place, ClosedJaxpr] = {}

    def run(self, closed: ClosedJaxpr, operands: list[Value], place: Place) -> list[Value]:
        """Returns the values of a jaxpr's results. A product that is read twice is none."""
        jaxpr, env = closed.jaxpr, dict[Any, Value]()
        atoms = (*jaxpr.outvars, *(atom for equation in jaxpr.eqns for atom in equation.invars))
        reads = Counter(atom for atom in atoms if not isinstance(atom, Literal))

        def write(atoms: Sequence[Any], values: Iterable[Value]) -> None:
            for atom, value in zip(atoms, values, strict=True):
                env[atom] = value if reads[atom] == 1 else value._replace(product=None)

        def read(atoms: Sequence[Any]) -> list[Value]:
            return [self._constant(x.val) if isinstance(x, Literal) else env[x] for x in atoms]

        write(jaxpr.constvars, [self._constant(x, self.constant) for x in closed.consts])
        write(jaxpr.invars, operands)
        for i, equation in enumerate(jaxpr.eqns):
            results = self._equation(equation, read(equation.invars), (*place, i))
            write(equation.outvars, results)
        return read(jaxpr.outvars)

    def _constant(self, array: Any, value: Value = CONSTANT) -> Value:
        if self.facts.nodes is None:
            return value
        return value._replace(number=known_number(array), stored=int(np.size(array) > 1))

    def _equation(self, equation: Any, values: list[Value], place: Place) -> list[Value]:
        primitive, name = equation.primitive.name, str(equation.params.get("name", ""))
        called = _called(equation, values)
        if primitive == "name" and name.startswith(MARK):
            mark = Mark(name.removeprefix(MARK), values[0].product, values[0].node)
            self.facts.marks.append(mark)
            results = [INPUT]
        elif primitive in ("scan", "while", "cond"):
            results = getattr(self, f"_{primitive}")(equation, values, place)
        elif called and primitive != "shard_map":
            return self._call(equation, called, values, place)
        elif called:
            results = self._inside(equation, called, values, place)
        else:
            results = transfer(self.facts, equation, values)
            results = self._as_variables(equation, values, results)
            if primitive in (*PRODUCTS, *SUMS) and (product := results[0].product):
                side = int(values[0].product is not None)
                bias = side if product.has_bias_in_own_axes else None
                self.layers[place] = Layer(equation, product, bias)
        of_parameters = any(value.of_parameters for value in values)
        results = [value._replace(of_parameters=of_parameters) for value in results]
        if primitive in ("scan", "while"):
            results = [value.after(values) for value in results]
        if primitive == "scan" or called or self.facts.nodes is None:
            return results
        return [
            self.facts.recorded(value, primitive, values, out, equation, place=place)
            for value, out in zip(results, equation.outvars, strict=True)
        ]

    def _as_variables(
        self, equation: Any, values: list[Value], results: list[Value]
    ) -> list[Value]:
        """Returns results with their ancestors; a view has those of its array."""
        if equation.primitive.name == "optimization_barrier":
            return results
        if equation.primitive.name in VIEWS:
            own, before = values[0].variable, values[0].ancestors
            return [value._replace(variable=own, ancestors=before) for value in results]
        pairs = zip(results, equation.outvars, strict=True)
        return [self.facts.as_variable(value, out, values) for value, out in pairs]

    def _call(
        self, equation: Any, closed: ClosedJaxpr, values: list[Value], place: Place
    ) -> list[Value]:
        """Inlines a call that computes a layer's product or adds its bias.

        Any other call stays one equation, with its own rule of differentiation, and so does one
        with such a rule that does nothing after the product or the sum.
        """
        outside, self.layers = self.layers, {}
        self.calls[place] = closed
        results = self.run(closed, values, place)
        inside, self.layers = self.layers, outside
        products = [layer.product for layer in inside.values()]
        has_derivative = equation.primitive.name.startswith("custom")
        last = results[0].product if len(results) == len(products) == 1 else None
        returns_product = last is not None and last.use is products[0].use
        stays = has_derivative and all(returns_product or x.biased for x in products)
        if products and not stays:
            if has_derivative:
                self.facts.opened.update(product.form.path for product in products)
            self.bodies[place] = closed
            self.layers.update(inside)
        elif returns_product and last:
            self.layers[place] = Layer(equation, last, None)
        return results

    def _inside(
        self, equation: Any, closed: ClosedJaxpr, values: list[Value], place: Place | None
    ) -> list[Value]:
        """Interprets the body of a loop or a branch, into and out of which no product passes.

        Nothing is recorded without a place.
        """
        facts = Facts(self.facts.kernels, bits=self.facts.bits) if place is None else self.facts
        body, outside = _Interpreter(facts, self.constant), (facts.within, facts.turns)
        facts.within = (*facts.within, equation.primitive.name)
        if equation.primitive.name == "scan":
            facts.turns = (*facts.turns, (facts.scans, equation.params["length"]))
        results = body.run(closed, _without_products(values), place or ())
        facts.within, facts.turns = outside
        if place is not None and equation.primitive.name == "scan":
            self.calls |= body.calls | {place: closed}
            if body.layers:
                self.layers |= body.layers
                self.bodies |= body.bodies | {place: closed}
        return _without_products(results)

    def _scan(self, equation: Any, values: list[Value], place: Place) -> list[Value]:
        (consts, carry), closed = scan_counts(equation), equation.params["jaxpr"]
        start, stacks = values[consts : consts + carry], values[consts + carry :]
        variables = closed.jaxpr.invars[consts:]

        self.facts.scans += 1
        number = self.facts.scans

        def entered(value: Value, before: Value, variable: Any) -> Value:
            return self.facts.recorded(value, "scan", [before], variable)

        def carried_on(value: Value, before: Value, variable: Any) -> Value:
            return self.facts.recorded(value, "carry", [before], variable, carries=number)

        slices = [stack.sliced_by_scan() for stack in stacks]
        slices = list(map(entered, slices, stacks, variables[carry:]))

        def turn(carried: list[Value], place: Place | None = None) -> list[Value]:
            carried = self._of_one_turn(carried, variables[:carry])
            return self._inside(equation, closed, [*values[:consts], *carried, *slices], place)

        carried = _fixpoint(start, lambda carried: turn(carried)[:carry])
        carried = list(map(carried_on, carried, start, variables[:carry]))
        results = turn(carried, place)
        stacked = [value._replace(views=(), altered=(), units=None) for value in results[carry:]]
        return [*results[:carry], *stacked]

    def _of_one_turn(self, carried: list[Value], variables: Sequence[Any]) -> list[Value]:
        """Returns the values that a turn starts with, without their ancestors in other turns."""
        pairs = zip(carried, variables, strict=False)
        return [self.facts.as_variable(value, variable, []) for value, variable in pairs]

    def _while(self, equation: Any, values: list[Value], place: Place) -> list[Value]:
        start = equation.params["cond_nconsts"]
        consts = values[start : start + equation.params["body_nconsts"]]
        condition, body = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]

        def turn(carried: list[Value], place: Place | None = None) -> list[Value]:
            carried = self._of_one_turn(carried, body.jaxpr.invars[len(consts) :])
            return self._inside(equation, body, [*consts, *carried], place)

        carry = _fixpoint(values[start + len(consts) :], turn)
        self._inside(equation, condition, [*values[:start], *carry], place)
        return turn(carry, place)

    def _cond(self, equation: Any, values: list[Value], place: Place) -> list[Value]:
        branches = equation.params["branches"]
        results = [self._inside(equation, branch, values[1:], place) for branch in branches]
        return functools.reduce(lambda one, other: list(map(join, one, other)), results)


def _without_products(values: list[Value]) -> list[Value]:
    return [value._replace(product=None) for value in values]


def _fixpoint(carry: list[Value], turn: Callable[[list[Value]], list[Value]]) -> list[Value]:
    """Returns the values that a loop carries at any turn."""
    while (joint := list(map(join, carry, turn(carry)))) != carry:
        carry = joint
    return carry


def _called(equation: Any, values: list[Value]) -> ClosedJaxpr | None:
    """Returns the body of a call that hands its operands on as they are.

    An unstack is a call that takes one entry after another.
    """
    if equation.primitive.name == "unstack":
        return _entries(equation)
    for key in _BODIES:
        body = equation.params.get(key)
        if isinstance(body, Jaxpr) and not body.constvars:
            body = ClosedJaxpr(body, [])
        if isinstance(body, ClosedJaxpr) and len(body.jaxpr.invars) == len(values):
            rows = zip(equation.invars, body.jaxpr.invars, values, strict=True)
            # The body of a `lax.reduce` gets single numbers; that of a shard_map a device's rows.
            split = equation.primitive.name == "shard_map"
            kept = (pair for *pair, v in rows if not split or v._replace(units=None).is_followed)
            if all(a.aval.shape == b.aval.shape for a, b in kept):
                return body
    return None


def _entries(unstack: Any) -> ClosedJaxpr:
    """Returns an unstack, written as the entries along its axis."""
    stacked, axis = unstack.invars[0].aval, unstack.params["axis"]

    def entries(x: Any) -> list[Any]:
        return [jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]

    return jax.make_jaxpr(entries)(jax.ShapeDtypeStruct(stacked.shape, stacked.dtype))
