"""Facts about a program's parameters that the abstract interpreter collects on its pass."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxnorm._paths import Path
from jaxnorm._trace.graph import Node
from jaxnorm._trace.primitives import PRODUCTS, product_axes
from jaxnorm._trace.stacks import Stack
from jaxnorm._trace.sums import Sums
from jaxnorm._trace.values import Product, Use, Value, sources


class Mark(NamedTuple):
    """Marked value: the name of the mark, the product and the node that the value is, if any."""

    name: str
    product: Product | None
    node: int | None


@dataclass
class Facts:
    """Facts about the parameters that the interpreter collects on its pass.

    Attributes:
        kernels: the parameters that are followed to their products; None for all.
        within: the loops, branches and shard_maps around the current equation.
        turns: the number and the length of each scan around the current equation.
        scans: how many scans there were so far.
        nodes: the variables that depend on the inputs, in execution order; None to record none.
        stacks: the stacks among the nodes.
        uses: the products of kernels.
        refused: why a parameter is not understood.
        changed: parameters of which another function is multiplied with the inputs.
        opened: kernels whose product is in an opened call with a derivative of its own.
        met: parameters that meet the inputs in something else than a product.
        biases: parameters that are added to a product, one entry per sum.
        read: parameters that anything else is made of.
        marks: the marked values, in execution order.
        bits: a bit for each variable that depends on the inputs.
        graph: the graph of the nodes, with its answers, once it was asked for.
    """

    kernels: frozenset[Path] | None
    within: tuple[str, ...] = ()
    turns: tuple[tuple[int, int], ...] = ()
    scans: int = 0
    nodes: list[Node] | None = None
    stacks: dict[int, Stack] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)
    changed: set[Path] = field(default_factory=set)
    opened: set[Path] = field(default_factory=set)
    met: set[Path] = field(default_factory=set)
    biases: list[Path] = field(default_factory=list)
    read: set[Path] = field(default_factory=set)
    marks: list[Mark] = field(default_factory=list)
    bits: dict[Any, int] = field(default_factory=dict)
    graph: Any = None

    def refuse(self, paths: Iterable[Path], reason: str, changed: bool = False) -> None:
        for path in sorted(paths):
            self.read.add(path)
            self.refused.setdefault(path, reason)
            if changed:
                self.changed.add(path)

    def as_variable(self, value: Value, variable: Any, operands: list[Value]) -> Value:
        """Returns a value with a bit of its own and the ancestors of its operands."""
        if not value.of_inputs:
            return value
        bit = self.bits.setdefault(variable, 1 << len(self.bits))
        return value._replace(variable=bit, ancestors=bit).after(operands)

    def recorded(
        self,
        value: Value,
        name: str,
        operands: list[Value],
        variable: Any,
        equation: Any = None,
        carries: int | None = None,
        place: tuple[int, ...] | None = None,
    ) -> Value:
        """Returns a value with its node in the graph, if it depends on the inputs.

        A sum of nodes is recorded as such, however it is written.
        """
        nodes = tuple(x.node for x in operands if x.node is not None)
        if self.nodes is None or not (nodes or value.of_inputs):
            return value._replace(node=None)
        constants = [x for x in operands if x.node is None]
        constant = constants[0] if len(constants) == 1 else Value(sources=sources(constants))
        is_product, shape = name in PRODUCTS and self.is_of_kernel(constant), variable.aval.shape
        sums = Sums(self.nodes, self.stacks, self.turns)
        which = 0 if equation is None else equation.outvars.index(variable)
        is_read = equation is not None and not is_product
        if is_read and (total := sums.sum_of(equation, operands, which)) is not None:
            return value._replace(node=total)
        units = _unit_count(equation, operands, shape) if is_product else 0
        is_real = jnp.issubdtype(variable.aval.dtype, jnp.inexact)
        self.nodes.append(
            Node(name, nodes, constant, shape, units, is_real, self.turns, carries, place)
        )
        if is_read:
            sums.note(equation, operands, which, len(self.nodes) - 1)
        return value._replace(node=len(self.nodes) - 1)

    def is_of_kernel(self, value: Value) -> bool:
        """Returns True if a value is made of a kernel, or of any parameter if all may be one."""
        paths = value.sources
        return bool(paths if self.kernels is None else paths & self.kernels)


def _unit_count(equation: Any, operands: list[Value], shape: tuple[int, ...]) -> int:
    """Returns how many units the result of a product with a kernel has."""
    side = next(i for i in (0, 1) if operands[i].node is None)
    return math.prod(shape[place] for place in product_axes(equation, side)[2].values())
