"""Numbers of values at which the units of kernels are measured."""

import math

from jaxnorm._paths import Path
from jaxnorm._phases import strides_of
from jaxnorm._trace.interpret import Program


def values_per_unit(program: Program) -> dict[Path, int]:
    """Returns how many values each unit of a kernel has at its first product in a program.

    There is one value per row and position, in one turn of the scans around the product. Copies
    count once: those of a pooled feature that is spread over an image again, say. ``program`` was
    traced with ``nodes=True``.
    """
    phases = {x.kernel.path: math.prod(strides_of(x.fan_in).values()) for x in program.facts.uses}
    layers, values, counts = list[int](), list[int](), dict[Path, int]()
    nodes = program.facts.nodes or []
    for index, node in enumerate(nodes):
        paths = node.constant.sources if node.is_product else frozenset()
        before = max((layers[i] for i in node.operands), default=-1)
        layers.append(index if node.is_product else before)
        # Beside the units of the last layer, the axes of a node count values.
        units = nodes[layers[-1]].units if layers[-1] >= 0 else 1
        count = math.prod(node.shape) // (units * max((phases.get(x, 1) for x in paths), default=1))
        if node.operands and node.primitive != "carry":
            count = min(count, max(values[i] for i in node.operands))
        values.append(count)
        counts |= dict.fromkeys(paths - counts.keys(), count)
    return counts
