"""A reading: a model's program, traced once, and what the interpreter found in it."""

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxnorm._layout import Layout, layout_at
from jaxnorm._mesh import varying_axes
from jaxnorm._node import Axes, is_node
from jaxnorm._paths import Path, is_absent, listed, matching, named_entries
from jaxnorm._reparametrize import effective
from jaxnorm._trace.facts import Facts
from jaxnorm._trace.interpret import Apply, Program, Traced, interpreted, is_flag, traced

Options = ParamSpec("Options")
Result = TypeVar("Result")


class Reading:
    """A model at some parameters and inputs, which `read` traced once.

    What was traced and interpreted is kept, so that a question costs once. Nothing else changes.

    Attributes:
        params: the parameters, or their shapes.
        inputs: the other arguments, arrays or their shapes.
        as_inputs: regular expressions of parameters that count as inputs.
        plain: plain parameters: values, or the shapes of the effective ones of nodes.

    Under jit a reading that was made outside is a constant of the program; one that is made inside
    holds traced values, and must not leave.

    Example:
        >>> import jax.numpy as jnp
        >>> net = read(lambda p, x: x @ p["w"], {"w": jnp.ones((2, 1))}, jnp.ones((4, 2)))
        >>> net.at({"w": jnp.zeros((2, 1))}, net.inputs).params["w"].sum().item()
        0.0
    """

    def __init__(
        self, apply: Apply, params: PyTree, inputs: tuple[Any, ...], as_inputs: Sequence[str] = ()
    ) -> None:
        present = (path for path, entry in named_entries(params) if not is_absent(entry))
        matching(as_inputs, "as_inputs", "parameter", present)
        self.params, self.inputs, self.as_inputs = params, inputs, as_inputs
        self.plain = plain_shapes(params)
        self._apply = apply
        self._traced: dict[Hashable, Traced | Exception] = {}
        self._interpreted: dict[Hashable, Program] = {}
        self._layout: Layout | None = None
        self._traced[self._key(inputs)] = traced(apply, self.plain, inputs)

    @classmethod
    def of(cls, apply: "Apply | Reading", params: PyTree, inputs: tuple[Any, ...]) -> "Reading":
        """Returns a model's reading, or the given one at current parameters and inputs."""
        if isinstance(apply, Reading):
            return apply.now(params, inputs)
        return cls(apply, params, inputs)

    def now(self, params: PyTree, inputs: tuple[Any, ...]) -> "Reading":
        """Returns the reading at current values; without parameters, at its own values."""
        return self if params is None else self.at(params, inputs or self.inputs)

    def at(self, params: PyTree, inputs: tuple[Any, ...]) -> "Reading":
        """Returns the reading at other values of parameters and inputs.

        Inputs of other shapes or types, other flags, and arrays that are split otherwise over
        explicit or manual axes of a mesh cost another trace. Raises ValueError for parameters of
        other paths or shapes.
        """
        other = copy.copy(self)
        other.params, other.inputs, other.plain = params, inputs, plain_shapes(params)
        other._layout = None
        _check_same_shapes(other.plain, self.plain)
        return other

    @property
    def layout(self) -> Layout:
        """The axes of each parameter that the model contracts, as `traced_layout` returns them.

        Raises ValueError for parameters that are not understood.
        """
        if self._layout is None:
            self._layout = layout_at(_fan_in_axes(self.program().facts, self.plain))
        return self._layout

    def program(self, kernels: Iterable[Path] | None = None, nodes: bool = False) -> Program:
        """Returns the program, with these kernels; None for every parameter that is multiplied."""
        return self.again(kernels, nodes)(self.inputs)

    def running(self, kernels: Iterable[Path] | None = None, nodes: bool = False) -> Program:
        """Returns the program, to be run at the values of parameters and inputs."""
        return self.program(kernels, nodes).at(effective(self.params), self.inputs)

    def result(self) -> Any:
        """Returns the model's result at the values of parameters and inputs."""
        return self.running(()).run(lambda layer, operands, x, collected, turns: (x, collected))[0]

    def again(
        self, kernels: Iterable[Path] | None = None, nodes: bool = False
    ) -> Callable[[tuple[Any, ...]], Program]:
        """Returns the program as a function of inputs, which may have other numbers of rows."""
        chosen = None if kernels is None else frozenset(kernels)

        def program(inputs: tuple[Any, ...]) -> Program:
            key = self._key(inputs), chosen, nodes
            if key not in self._interpreted:
                found = self._of_types(inputs)
                self._interpreted[key] = interpreted(found, chosen, self.as_inputs, nodes)
            return self._interpreted[key]

        return program

    def _key(self, inputs: tuple[Any, ...]) -> Hashable:
        """Returns what a trace depends on: a parameter that is a Python number is a constant."""
        types = tuple(getattr(x, "dtype", x) for x in jax.tree.leaves(self.plain))
        return types, _shapes(inputs), _split((self.plain, inputs))

    def _of_types(self, inputs: tuple[Any, ...]) -> Traced:
        """Returns the program that was traced for such inputs; raises what the model raised."""
        key = self._key(inputs)
        if key not in self._traced:
            try:
                self._traced[key] = traced(self._apply, self.plain, inputs)
            except Exception as error:  # whatever a model raises at a size that it is not made for
                self._traced[key] = error
        found = self._traced[key]
        if isinstance(found, Exception):
            raise found
        return found


def read(apply: Apply, params: PyTree, *inputs: Any, as_inputs: Sequence[str] = ()) -> Reading:
    """Traces a model once, for all functions of a model's program.

    Each of them takes the reading first: ``traced_layout(net)``, ``residual_factors(net)``,
    ``normalizer_free(net, optimizer)``; those that run the program also take current
    parameters and inputs, of the same shapes: ``input_means(net, params, x)``. None traces the
    model again, except for other types or numbers of rows. The ``layout`` of each defaults to the
    reading's.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=False)[0]``.
        params: the parameters, or their shapes; kernels may be reparametrized.
        *inputs: the other arguments, arrays or their shapes.
        as_inputs: regular expressions, searched for in the ``/``-joined paths, of parameters that
            are no kernels and that the model uses as if they were inputs, such as learned queries
            and latents, which start a residual stream.

    Returns:
        A `Reading`.

    Raises:
        TypeError: for an ``apply`` that is no function, and one string in the place of several
            expressions.
        ValueError: for an expression that matches no parameter.

    Nothing is computed, and sharding has no influence. Under pmap and shard_map read the model
    outside.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}
        >>> apply = lambda p, x: jnp.tanh(x @ p["kernel"] + p["bias"][None])
        >>> net = read(apply, params, jnp.ones((4, 2)))
        >>> from jaxnorm import first_layer, traced_layout
        >>> traced_layout(net)(params), first_layer(net)
        ({'bias': None, 'kernel': (-2,)}, {'bias': False, 'kernel': True})

    Source: ours.
    """
    return Reading(apply, params, inputs, as_inputs)


def of_reading(
    function: Callable[Concatenate[Reading, Options], Result],
) -> Callable[Concatenate[Reading, Options], Result]:
    """Makes a function of a reading raise a TypeError that says how to make one from a model."""

    @wraps(function)
    def checked(net: Reading, /, *args: Options.args, **options: Options.kwargs) -> Result:
        if not isinstance(net, Reading):
            name = function.__name__
            raise TypeError(
                f"the first argument of {name} is of type {type(net).__name__!r}; wanted a "
                "reading, which is made once for all functions: pass jn.read(apply, params, "
                f"*inputs) in the place of the three, {name}(net, ...)."
            )
        return function(net, *args, **options)

    return checked


def _fan_in_axes(facts: Facts, params: PyTree) -> dict[Path, Axes]:
    """Returns the axes by path. Raises ValueError for what was not understood, or without any."""
    axes: dict[Path, set[Axes]] = {}
    for use in facts.uses:
        if use.fan_in:
            axes.setdefault(use.kernel.path, set()).add(use.fan_in)
    refused = facts.refused | {
        path: f"is contracted along {' and '.join(map(str, sorted(several)))}"
        for path, several in axes.items()
        if len(several) > 1
    }
    if refused:
        reasons = "; ".join(f"{path!r} {reason}" for path, reason in refused.items())
        raise ValueError(
            f"traced_layout does not know the fan-in axes, because {reasons}. Write a "
            "layout_from_rules([(regex, axes), ...]), or name parameters that are no kernels when "
            "you read the model: read(apply, params, *inputs, as_inputs=[regex])."
        )
    if not axes:
        paths = [path for path, entry in named_entries(params) if not is_absent(entry)]
        raise ValueError(
            "the model multiplies its inputs by none of its parameters, so it has no kernel. "
            f"The paths are: {listed(paths)}. Read apply(params, *inputs)."
        )
    return {path: next(iter(several)) for path, several in axes.items()}


def plain_shapes(params: PyTree) -> PyTree:
    """Returns plain parameters as they are, and the shapes of the effective ones of others."""
    nodes = any(map(is_node, jax.tree.leaves(params, is_leaf=is_node)))
    return jax.eval_shape(effective, params) if nodes else params


def _shapes(inputs: tuple[Any, ...]) -> Hashable:
    """Returns what a trace depends on: shapes and types of arrays, and the values of flags."""
    flags = tuple((type(x), x) if is_flag(x) else None for x in inputs)
    leaves, structure = jax.tree.flatten([x for x in inputs if not is_flag(x)])
    return flags, structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)


def _split(tree: Any) -> Hashable:
    """Returns how arrays are split over explicit and manual axes of a mesh; empty if they are not.

    Their types have it, and so does a program that was traced with them.
    """
    avals = (getattr(x, "aval", None) for x in jax.tree.leaves(tree))
    shardings = [(aval, getattr(aval, "sharding", None)) for aval in avals]
    splits = tuple(
        (varying_axes(aval), sharding.mesh.explicit_axes and (sharding.mesh, sharding.spec))
        for aval, sharding in shardings
        if aval is not None and sharding is not None
    )
    return splits if any(map(any, splits)) else ()


def _check_same_shapes(params: PyTree, wanted: PyTree) -> None:
    """Raises ValueError, with the first path, for parameters of other paths or shapes."""
    made, known = (
        {path: getattr(x, "shape", None) for path, x in named_entries(tree)}
        for tree in (params, wanted)
    )
    for path in dict.fromkeys((*known, *made)):
        if made.get(path) != known.get(path):
            raise ValueError(
                f"the parameter {path!r} has the shape {made.get(path)}, and had {known.get(path)} "
                "when the model was read; wanted the same paths and shapes. Read the model anew: "
                "read(apply, params, *inputs)."
            )
