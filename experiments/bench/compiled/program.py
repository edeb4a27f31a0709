"""Costs of a compiled program, read off its text: bytes to and from HBM, kernels, collectives."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

#: Operations that move nothing: names for existing arrays, and the ends of asynchronous operations,
#: which are counted at their start.
_FREE = frozenset(
    (
        *("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "iota", "after-all"),
        *("partition-id", "replica-id", "optimization-barrier", "opt-barrier", "add-dependency"),
    )
)
#: Custom calls that start no kernel.
_NO_KERNELS = ("AllocateBuffer", "ConcatBitcast", "Sharding", "SPMDFullToShardShape")

_ARRAY = re.compile(r"(pred|[a-z]+(\d+)\w*)\[([\d,]*)\](\{[^}]*\})?")
_LINE = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")


class Instruction(NamedTuple):
    """One line of a program.

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
        self.computations, self.entry = _parse(text)

    @cached_property
    def cost(self) -> Cost:
        """Cost of one call of the program.

        A fusion reads its operands and writes its results once, whatever it does between. Arrays
        in a TPU's fast memory (layouts with ``S(1)``) cause no traffic; a copy between the two
        memories counts once, the body of a loop as often as it runs. Sizes are those of shapes,
        without the padding of tiles.
        """
        return self._cost(self.entry)

    @property
    def collectives(self) -> list[Instruction]:
        """All collectives in the program; one may move several arrays."""
        return [
            each
            for body in self.computations.values()
            for each in body
            if each.operation.removesuffix("-start") in COLLECTIVES
        ]

    @property
    def collective_kinds(self) -> list[str]:
        """The operation of each collective, such as ``all-reduce``."""
        return [each.operation.removesuffix("-start") for each in self.collectives]

    @property
    def collective_bytes(self) -> int:
        """Bytes of the results of all collectives on one device."""
        return sum(size for each in self.collectives for size, _ in _arrays(_output(each)))

    def _cost(self, name: str) -> Cost:
        body = self.computations[name]
        shapes = {each.name: each.shape for each in body}
        costs = [self._instruction_cost(each, shapes) for each in body]
        return Cost(sum(c.hbm_bytes for c in costs), sum(c.kernels for c in costs))

    def _instruction_cost(self, each: Instruction, shapes: Mapping[str, str]) -> Cost:
        called = self._called(each)
        if each.operation == "while":
            count = re.search(r'known_trip_count":\{"n":"(\d+)"', each.attributes)
            times = int(count[1]) if count else 1
            return Cost(*(times * sum(parts) for parts in zip(*called, strict=True)))
        if each.operation == "call":
            return called[0]
        if each.operation == "conditional":
            return max(called)
        is_kernel = each.operation in ("fusion", "custom-call", "convolution", "dot")
        is_free = any(f'custom_call_target="{name}"' in each.attributes for name in _NO_KERNELS)
        return Cost(_moved(each, shapes), int(is_kernel and not is_free))

    def _called(self, each: Instruction) -> list[Cost]:
        """Returns the costs of the computations that the instruction runs inline."""
        if each.operation not in ("while", "call", "conditional"):
            return []
        places = r"(?:body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
        names = re.findall(places, each.attributes)
        branches = re.search(r"branch_computations=\{([^}]*)\}", each.attributes)
        names += re.findall(r"%?([\w.\-]+)", branches[1]) if branches else []
        return [self._cost(name) for name in names]


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    entry, body = "", []
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if header := _HEADER.match(line):
            body = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        elif assignment := _LINE.match(line):
            body.append(_instruction(assignment[1], assignment[2]))
    return computations, entry


def _instruction(name: str, text: str) -> Instruction:
    end = _closing(text) if text.startswith("(") else text.index(" ")
    shape, text = text[:end], text[end:].strip()
    operation, _, _ = text.partition("(")
    text = text[len(operation) :]
    end = _closing(text)
    operands = tuple(re.findall(r"%([\w.\-]+)", text[:end]))
    return Instruction(name, shape, operation, operands, text[end:])


def _closing(text: str) -> int:
    """Returns the position behind the parenthesis that closes the first one."""
    depth = 0
    for parenthesis in re.finditer(r"[()]", text):
        depth += 1 if parenthesis[0] == "(" else -1
        if depth == 0:
            return parenthesis.end()
    return len(text)


def _moved(each: Instruction, shapes: Mapping[str, str]) -> int:
    """Returns the bytes that one instruction moves to and from HBM."""
    if each.operation in _FREE or each.operation.endswith("-done"):
        return 0
    inputs = [array for name in each.operands for array in _arrays(shapes.get(name, ""))]
    outputs = list(_arrays(_output(each)))
    if each.operation in ("slice-start", "async-start"):
        # A slice reads as much of its operand as it writes.
        size = sum(size for size, _ in outputs)
        sides = any(in_hbm for _, in_hbm in inputs) + any(in_hbm for _, in_hbm in outputs)
        return size * sides
    return sum(size for size, in_hbm in (*inputs, *outputs) if in_hbm)


def _output(each: Instruction) -> str:
    """Returns the type of an instruction's result, without the operands that a start repeats."""
    if not each.operation.endswith("-start"):
        return each.shape
    parts = _parts(each.shape)
    if each.operation == "copy-start":
        return parts[0]
    if each.operation == "all-reduce-start" and not parts[0].startswith("("):
        return each.shape
    return parts[1]


def _parts(shape: str) -> list[str]:
    """Returns the types in the type of a tuple."""
    parts, depth = [""], 0
    for character in shape[1:-1]:
        depth += character in "([{"
        depth -= character in ")]}"
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _arrays(shape: str) -> Iterator[tuple[int, bool]]:
    """Yields the bytes of every array in a type, and True if it is in HBM."""
    for kind, bits, sizes, layout in _ARRAY.findall(shape):
        size = math.prod(map(int, filter(None, sizes.split(","))))
        yield size * (8 if kind == "pred" else int(bits)) // 8, "S(" not in layout
