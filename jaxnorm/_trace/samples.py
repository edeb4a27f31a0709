"""Sample axes: the axes of a program's products that count the rows of the inputs."""

import warnings
from collections.abc import Callable, Collection
from typing import Any

import jax

from jaxnorm._trace.interpret import Program

#: ``inputs -> program``: traces a model again, for other inputs.
TraceAgain = Callable[[tuple[Any, ...]], Program]


def sample_axes(
    program: Program, trace_again: TraceAgain, inputs: tuple[Any, ...]
) -> dict[int, int]:
    """Returns the axis of each layer's result that counts rows: the one that grows with them.

    Beside layers of the first input's rows, a layer that none of them reaches has the axis that
    grows with an array of as many rows in another argument: it is of a second tower.
    """
    doubled, separate = _doubled(trace_again, inputs)
    rows = count_rows(inputs)
    axes = _grown_axes(program, doubled, rows) if doubled else {}
    for i in separate if axes else ():
        alone = _traced(trace_again, inputs, {i: 2})
        axes = (_grown_axes(program, alone, rows) if alone else {}) | axes
    return axes


def doubled_program(trace_again: TraceAgain, inputs: tuple[Any, ...]) -> Program | None:
    """Returns the program for twice as many rows; None if it cannot be traced with them.

    The rows are the first axis of the first input array. Other arrays of as many rows count the
    same rows if they are in the same argument, or if the model cannot be traced with more of them;
    if it cannot be traced with more rows at all, every axis of theirs that is as long counts rows,
    like both axes of a graph's adjacency matrix.
    """
    return _doubled(trace_again, inputs)[0]


def _doubled(trace_again: TraceAgain, inputs: tuple[Any, ...]) -> tuple[Program | None, list[int]]:
    """Returns the `doubled_program`, and the leaves of as many rows that are not tied to it."""
    tied, others = _row_leaves(inputs)
    every = dict.fromkeys((*tied, *others), 2)
    doubled = _traced(trace_again, inputs, every)
    if doubled is None and others:
        doubled = _traced(trace_again, inputs, every, others)
    elif others:
        tied += [i for i in others if _traced(trace_again, inputs, {**every, i: 3}) is None]
        doubled = _traced(trace_again, inputs, dict.fromkeys(tied, 2))
    return doubled, [i for i in others if i not in tied]


def _traced(
    trace_again: TraceAgain,
    inputs: tuple[Any, ...],
    factors: dict[int, int],
    square: Collection[int] = (),
) -> Program | None:
    """Returns the program for more rows in some leaves; None if it cannot be traced with them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return trace_again(_resized(inputs, factors, square))
    except Exception:  # Whatever a model raises at a batch size that it is not written for.
        return None


def _grown_axes(program: Program, doubled: Program, rows: int) -> dict[int, int]:
    """Returns the axes that are twice as long in the second program; none if the layers differ."""
    layers, others = list(program.layers.values()), list(doubled.layers.values())
    if [x.product.form.path for x in layers] != [x.product.form.path for x in others]:
        return {}
    axes: dict[int, int] = {}
    for layer, other in zip(layers, others, strict=True):
        shapes = (x.equation.outvars[0].aval.shape for x in (layer, other))
        grown = [(i, a, b) for i, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b]
        if len(grown) == 1 and grown[0][1:] == (rows, 2 * rows):
            axes[id(layer)] = grown[0][0]
    return axes


def count_rows(inputs: tuple[Any, ...]) -> int:
    """Returns the length of the first array: the number of rows."""
    lengths = (x.shape[0] for x in jax.tree.leaves(inputs) if getattr(x, "ndim", 0))
    return next(lengths, 1)


def _row_leaves(inputs: tuple[Any, ...]) -> tuple[list[int], list[int]]:
    """Returns the leaves of as many rows as the first, in its argument and in the others."""
    arguments = [number for number, x in enumerate(inputs) for _ in jax.tree.leaves(x)]
    leaves = enumerate(jax.tree.leaves(inputs))
    lengths = {i: x.shape[0] for i, x in leaves if getattr(x, "ndim", 0)}
    candidates = [i for i, length in lengths.items() if length == count_rows(inputs)]
    first = next(iter(lengths), 0)
    tied = [i for i in candidates if arguments[i] == arguments[first]]
    return tied, [i for i in candidates if i not in tied]


def _resized(
    inputs: tuple[Any, ...], factors: dict[int, int], square: Collection[int]
) -> tuple[Any, ...]:
    """Returns the inputs with more rows in some leaves, the ``square`` ones along every axis."""
    leaves, structure = jax.tree.flatten(inputs)
    for i, factor in factors.items():
        aval = jax.typeof(leaves[i])
        rows, *sizes = aval.shape
        if i in square:
            sizes = [size * factor if size == rows else size for size in sizes]
        leaves[i] = aval.update(shape=(rows * factor, *sizes))
    resized: tuple[Any, ...] = jax.tree.unflatten(structure, leaves)
    return resized
