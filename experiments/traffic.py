"""What the devices of a compiled program send each other."""

import math
import re
from typing import NamedTuple

COLLECTIVES = r" (all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(?:-start)?\("


class Traffic(NamedTuple):
    """What the devices send each other in one call of a compiled function.

    Attributes:
        operations: the kind of each collective; several arrays may travel in one.
        bytes: of the results on one device, summed over all operations.
    """

    operations: list[str]
    bytes: int


def traffic_of(program: str) -> Traffic:
    """Read off a compiled program, each line of which is ``name = shapes operation(...)``.

    Args:
        program: the text of a `jax.stages.Compiled`: what one device runs.
    """
    lines = [line for line in program.splitlines() if re.search(COLLECTIVES, line)]
    shapes = [re.split(COLLECTIVES, line)[0].partition("=")[2] for line in lines]
    arrays = re.findall(r"([a-z]+)(\d+)\[([\d,]*)\]", " ".join(shapes))
    sizes = [
        int(bits) // 8 * math.prod(map(int, filter(None, dims.split(","))))
        for _, bits, dims in arrays
    ]
    return Traffic(re.findall(COLLECTIVES, program), sum(sizes))
