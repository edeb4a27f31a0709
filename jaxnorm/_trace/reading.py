"""A reading: a model's program, traced once, and what the interpreter found in it."""

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxnorm._checks import check_patterns
from jaxnorm._node import is_node
from jaxnorm._paths import Path, named_entries
from jaxnorm._reparametrize import effective
from jaxnorm._trace.interpret import Apply, Program, Traced, interpreted, is_flag, traced


class Reading:
    """A model at some parameters and inputs, which `read` traced once.

    What was traced and interpreted is kept, so that a question costs once. Nothing else changes.

    Attributes:
        params: the parameters, or their shapes.
        inputs: the other arguments, arrays or their shapes.
        free: regular expressions of parameters that count as inputs.
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
        self, apply: Apply, params: PyTree, inputs: tuple[Any, ...], free: Sequence[str] = ()
    ) -> None:
        check_patterns(free, "free")
        self.params, self.inputs, self.free = params, inputs, free
        self.plain = plain_shapes(params)
        self._trace: Callable[[tuple[Any, ...]], Traced] = partial(traced, apply, self.plain)
        self._traced: dict[Hashable, Traced | Exception] = {}
        self._interpreted: dict[Hashable, Program] = {}
        self._traced[_shapes(inputs)] = self._trace(inputs)

    @classmethod
    def of(
        cls,
        apply: "Apply | Reading",
        params: PyTree,
        inputs: tuple[Any, ...],
        free: Sequence[str] = (),
    ) -> "Reading":
        """Returns a model's reading, or the given one, at the given parameters and inputs if any.

        Raises ValueError for ``free`` beside a reading, which has its own.
        """
        if not isinstance(apply, Reading):
            return cls(apply, params, inputs, free)
        if free:
            raise ValueError(
                f"free is {free!r} beside a reading, which knows its own; pass the expressions to "
                "read, as_inputs=[regex]."
            )
        return apply if params is None else apply.at(params, inputs or apply.inputs)

    def at(self, params: PyTree, inputs: tuple[Any, ...]) -> "Reading":
        """Returns the reading at other values of parameters and inputs.

        Inputs of other shapes or types, or other flags, cost another trace. Raises ValueError for
        parameters of other paths or shapes.
        """
        other = copy.copy(self)
        other.params, other.inputs, other.plain = params, inputs, plain_shapes(params)
        _check_same_shapes(other.plain, self.plain)
        return other

    def program(self, kernels: Iterable[Path] | None = None, nodes: bool = False) -> Program:
        """Returns the program, with these kernels; None for every parameter that is multiplied."""
        return self.again(kernels, nodes)(self.inputs)

    def running(self, kernels: Iterable[Path] | None = None, nodes: bool = False) -> Program:
        """Returns the program, to be run at the values of parameters and inputs."""
        return self.program(kernels, nodes).at(effective(self.params), self.inputs)

    def again(
        self, kernels: Iterable[Path] | None = None, nodes: bool = False
    ) -> Callable[[tuple[Any, ...]], Program]:
        """Returns the program as a function of inputs, which may have other numbers of rows."""
        chosen = None if kernels is None else frozenset(kernels)

        def program(inputs: tuple[Any, ...]) -> Program:
            shapes = _shapes(inputs)
            key = shapes, chosen, nodes
            if key not in self._interpreted:
                found = self._of_shapes(shapes, inputs)
                self._interpreted[key] = interpreted(found, chosen, self.free, nodes)
            return self._interpreted[key]

        return program

    def _of_shapes(self, shapes: Hashable, inputs: tuple[Any, ...]) -> Traced:
        """Returns the program that was traced for inputs of these shapes; raises what it raised."""
        if shapes not in self._traced:
            try:
                self._traced[shapes] = self._trace(inputs)
            except Exception as error:  # whatever a model raises at a size that it is not made for
                self._traced[shapes] = error
        found = self._traced[shapes]
        if isinstance(found, Exception):
            raise found
        return found


def read(apply: Apply, params: PyTree, *inputs: Any, as_inputs: Sequence[str] = ()) -> Reading:
    """Traces a model once, for all functions that take ``(apply, params, *inputs)``.

    Each of them takes the reading in the place of the three: ``traced_layout(net)``,
    ``residual_factors(net)``, ``normalizer_free(net, optimizer)``; or with the parameters and
    inputs of now, of the same shapes, ``input_means(net, params, x)``. None traces the model then,
    but for other numbers of rows.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=False)[0]``.
        params: the parameters, or their shapes; kernels may be reparametrized.
        *inputs: the other arguments, arrays or their shapes.
        as_inputs: regular expressions, searched for in the ``/``-joined paths, of parameters that
            are no kernels and that the model uses as if they were inputs, such as learned queries:
            ``free`` of the other functions.

    Returns:
        A `Reading`.

    Raises:
        TypeError: for an ``apply`` that is no function, and one string in the place of several
            expressions.

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
    check_patterns(as_inputs, "as_inputs")
    return Reading(apply, params, inputs, as_inputs)


def plain_shapes(params: PyTree) -> PyTree:
    """Returns plain parameters as they are, and the shapes of the effective ones of others."""
    nodes = any(map(is_node, jax.tree.leaves(params, is_leaf=is_node)))
    return jax.eval_shape(effective, params) if nodes else params


def _shapes(inputs: tuple[Any, ...]) -> Hashable:
    """Returns what a trace depends on: shapes and types of arrays, and the values of flags."""
    flags = tuple((type(x), x) for x in inputs if is_flag(x))
    leaves, structure = jax.tree.flatten([x for x in inputs if not is_flag(x)])
    return flags, structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)


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
