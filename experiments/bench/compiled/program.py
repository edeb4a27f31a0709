"""What a compiled program does, read off its text: bytes to and from HBM, kernels, collectives."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

#: They move nothing: names for what is there, and the ends of what was counted where it began.
_FREE = frozenset(
    (
        *("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "iota", "after-all"),
        *("partition-id", "replica-id", "optimization-barrier", "opt-barrier", "add-dependency"),
    )
)
#: Custom calls that are no kernels.
_NO_KERNELS = ("AllocateBuffer", "ConcatBitcast", "Sharding", "SPMDFullToShardShape")

_ARRAY = re.compile(r"(pred|[a-z]+(\d+)\w*)\[([\d,]*)\](\{[^}]*\})?")
_LINE = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")


class Instruction(NamedTuple):
    """One line of a program.

    Attributes:
        name: what later lines call its result.
        shape: the type of its result, with layouts.
        operation: what it does.
        operands: the names of what it takes.
        attributes: what follows.
    """

    name: str
    shape: str
    operation: str
    operands: tuple[str, ...]
    attributes: str


class Cost(NamedTuple):
    """What a computation costs; costs add, and a loop's body counts as often as it runs."""

    hbm_bytes: int
    kernels: int


class Program:
    """A compiled program's text, parsed; one device runs it.

    Args:
        text: of a `jax.stages.Compiled`.
    """

    def __init__(self, text: str):
        self.computations, self.entry = _parse(text)

    @cached_property
    def cost(self) -> Cost:
        """Of one call.

        A fusion reads its operands and writes its results once, whatever it does between; what is
        in a TPU's fast memory (layouts with ``S(1)``) is no traffic, and a copy between the two
        memories is, once. Sizes are those of shapes, without the padding of tiles.
        """
        return self._cost(self.entry)

    @property
    def collectives(self) -> list[Instruction]:
        """Everywhere in the program; several arrays may travel in one."""
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
        """Of the results of all collectives on one device."""
        return sum(size for each in self.collectives for size, _ in _arrays(_output(each)))

    def _cost(self, name: str) -> Cost:
        body = self.computations[name]
        shapes = {each.name: each.shape for each in body}
        costs = [self._one(each, shapes) for each in body]
        return Cost(sum(c.hbm_bytes for c in costs), sum(c.kernels for c in costs))

    def _one(self, each: Instruction, shapes: Mapping[str, str]) -> Cost:
        called = self._called(each)
        if each.operation == "while":
            found = re.search(r'known_trip_count":\{"n":"(\d+)"', each.attributes)
            times = int(found[1]) if found else 1
            return Cost(*(times * sum(parts) for parts in zip(*called, strict=True)))
        if each.operation == "call":
            return called[0]
        if each.operation == "conditional":
            return max(called)
        is_kernel = each.operation in ("fusion", "custom-call", "convolution", "dot")
        is_free = any(f'custom_call_target="{name}"' in each.attributes for name in _NO_KERNELS)
        return Cost(_moved(each, shapes), int(is_kernel and not is_free))

    def _called(self, each: Instruction) -> list[Cost]:
        """Of the computations that it runs as if their lines stood here."""
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
        elif found := _LINE.match(line):
            body.append(_instruction(found[1], found[2]))
    return computations, entry


def _instruction(name: str, rest: str) -> Instruction:
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].strip()
    operation, _, _ = rest.partition("(")
    rest = rest[len(operation) :]
    end = _closing(rest)
    operands = tuple(re.findall(r"%([\w.\-]+)", rest[:end]))
    return Instruction(name, shape, operation, operands, rest[end:])


def _closing(text: str) -> int:
    """The place behind the parenthesis that closes the first one."""
    depth = 0
    for found in re.finditer(r"[()]", text):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    return len(text)


def _moved(each: Instruction, shapes: Mapping[str, str]) -> int:
    """The bytes of one instruction to and from HBM."""
    if each.operation in _FREE or each.operation.endswith("-done"):
        return 0
    taken = [array for name in each.operands for array in _arrays(shapes.get(name, ""))]
    given = list(_arrays(_output(each)))
    if each.operation in ("slice-start", "async-start"):
        # A part of the operand: as much as comes out is read, and written.
        size = sum(size for size, _ in given)
        sides = any(outside for _, outside in taken) + any(outside for _, outside in given)
        return size * sides
    return sum(size for size, outside in (*taken, *given) if outside)


def _output(each: Instruction) -> str:
    """The type of what an instruction gives; one that starts something repeats its operands."""
    if not each.operation.endswith("-start"):
        return each.shape
    parts = _parts(each.shape)
    if each.operation == "copy-start":
        return parts[0]
    if each.operation == "all-reduce-start" and not parts[0].startswith("("):
        return each.shape
    return parts[1]


def _parts(shape: str) -> list[str]:
    """The types in a tuple's."""
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
    """The bytes of every array in a type, and whether it is in HBM."""
    for kind, bits, sizes, layout in _ARRAY.findall(shape):
        size = math.prod(map(int, filter(None, sizes.split(","))))
        yield size * (8 if kind == "pred" else int(bits)) // 8, "S(" not in layout
