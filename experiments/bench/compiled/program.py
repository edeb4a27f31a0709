"""Costs of a compiled program, read off its text: bytes to and from HBM, kernels, collectives."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

#: Operations that move nothing: names for existing arrays.
_FREE = (
    *("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "iota", "after-all"),
    *("partition-id", "replica-id", "optimization-barrier", "opt-barrier", "add-dependency"),
)
#: Custom calls that start no kernel.
_NO_KERNELS = ("AllocateBuffer", "ConcatBitcast", "Sharding", "SPMDFullToShardShape")

_ARRAY = re.compile(r"(pred|[a-z]+(\d+)\w*)\[([\d,]*)\](\{[^}]*\})?")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
#: The name of a result, its type, the operation, its operands, and attributes.
_LINE = re.compile(
    r"\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)(?=, [\w\-]+=|$)(.*)"
)


class Instruction(NamedTuple):
    """One line of a program; the start and the end of an asynchronous operation are one.

    Attributes:
        name: the name of its result in later lines.
        shape: the type of its result, with layouts.
        operation: the name of the operation.
        operands: the names of its operands.
        attributes: the text that follows the operands.
    """

    name: str
    shape: str
    operation: str
    operands: tuple[str, ...]
    attributes: str


class Cost(NamedTuple):
    """Cost of a computation: bytes to and from HBM, and kernels started."""

    hbm_bytes: int
    kernels: int


class Program:
    """A compiled program's text, parsed; one device runs it.

    Args:
        text: the text of a `jax.stages.Compiled`.
    """

    def __init__(self, text: str):
        self._entry, computations = "", dict[str, list[Instruction]]()
        for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
            if header := _HEADER.match(line):
                body = computations.setdefault(header[2], [])
                self._entry = header[2] if header[1] else self._entry
            elif found := _LINE.match(line):
                name, shape, operation, operands, attributes = found.groups()
                names = tuple(re.findall(r"%([\w.\-]+)", operands))
                body.append(Instruction(name, shape, operation, names, attributes))
        self._computations = {name: _joined(body) for name, body in computations.items()}

    @cached_property
    def cost(self) -> Cost:
        """Cost of one call of the program.

        A fusion reads its operands and writes its results once, whatever it does between. Arrays
        in a TPU's fast memory (layouts with ``S(1)``) cause no traffic; a copy between the two
        memories counts once, the body of a loop as often as it runs. Sizes are those of shapes,
        without the padding of tiles.
        """
        return self._cost(self._entry)

    @property
    def collectives(self) -> list[Instruction]:
        """All collectives in the program; one may move several arrays."""
        instructions = (each for body in self._computations.values() for each in body)
        return [each for each in instructions if _kind(each) in COLLECTIVES]

    @property
    def collective_kinds(self) -> list[str]:
        """The operation of each collective, such as ``all-reduce``."""
        return [_kind(each) for each in self.collectives]

    @property
    def collective_bytes(self) -> int:
        """Bytes of the results of all collectives on one device."""
        return sum(size for each in self.collectives for size, _ in _arrays(each.shape))

    def _cost(self, name: str) -> Cost:
        body = self._computations[name]
        shapes = {each.name: each.shape for each in body}
        costs = [self._instruction_cost(each, shapes) for each in body]
        return Cost(sum(c.hbm_bytes for c in costs), sum(c.kernels for c in costs))

    def _instruction_cost(self, each: Instruction, shapes: Mapping[str, str]) -> Cost:
        if each.operation == "conditional":
            return max(self._called(each))
        if each.operation in ("call", "while"):
            count = re.search(r'known_trip_count":\{"n":"(\d+)"', each.attributes)
            times = int(count[1]) if count else 1
            return Cost(*(times * sum(part) for part in zip(*self._called(each), strict=True)))
        is_kernel = each.operation in ("fusion", "custom-call", "convolution", "dot")
        is_free = any(f'custom_call_target="{name}"' in each.attributes for name in _NO_KERNELS)
        return Cost(_moved(each, shapes), int(is_kernel and not is_free))

    def _called(self, each: Instruction) -> list[Cost]:
        """Returns the costs of the computations that the instruction runs inline."""
        places = r"(?:body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
        names = re.findall(places, each.attributes)
        branches = re.search(r"branch_computations=\{([^}]*)\}", each.attributes)
        names += re.findall(r"%?([\w.\-]+)", branches[1]) if branches else []
        return [self._cost(name) for name in names]


def _joined(body: list[Instruction]) -> list[Instruction]:
    """Joins the starts of asynchronous operations with their ends, which have the results."""
    starts = {each.name: each for each in body if each.operation.endswith("-start")}
    return [
        starts[each.operands[0]]._replace(name=each.name, shape=each.shape)
        if each.operation.endswith("-done")
        else each
        for each in body
        if each.name not in starts
    ]


def _kind(each: Instruction) -> str:
    return each.operation.removesuffix("-start")


def _moved(each: Instruction, shapes: Mapping[str, str]) -> int:
    """Returns the bytes that one instruction moves to and from HBM."""
    if each.operation in _FREE:
        return 0
    inputs = [array for name in each.operands for array in _arrays(shapes.get(name, ""))]
    outputs = list(_arrays(each.shape))
    if each.operation in ("slice-start", "async-start"):
        # A slice reads as much of its operand as it writes.
        sides = any(in_hbm for _, in_hbm in inputs) + any(in_hbm for _, in_hbm in outputs)
        return sides * sum(size for size, _ in outputs)
    return sum(size for size, in_hbm in (*inputs, *outputs) if in_hbm)


def _arrays(shape: str) -> Iterator[tuple[int, bool]]:
    """Yields the bytes of every array in a type, and True if it is in HBM."""
    for kind, bits, sizes, layout in _ARRAY.findall(shape):
        size = math.prod(map(int, filter(None, sizes.split(","))))
        yield size * (8 if kind == "pred" else int(bits)) // 8, "S(" not in layout
