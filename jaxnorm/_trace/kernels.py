"""Kernels that are used in products alone, and those with a bias of their own."""

from typing import NamedTuple

from jaxnorm._node import Axes
from jaxnorm._paths import Path
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.layers import private_biases
from jaxnorm._trace.primitives import PRODUCTS
from jaxnorm._trace.replay import Layer


class BiasedKernel(NamedTuple):
    """Kernel whose products all get one bias, of one value per channel, that nothing else reads.

    Attributes:
        bias: the path of the bias.
        fan_in: the kernel's axes, negative, that its products sum over.
        layers: the kernel's axes, negative, that scans slice.
        uses: the number of its products.
        is_shared: True if all units of a layer read the same inputs.
    """

    bias: Path
    fan_in: Axes
    layers: Axes
    uses: int
    is_shared: bool


def measurable_kernels(program: Program) -> dict[Path, list[Layer]]:
    """Returns the products of each kernel whose pre-activations can be measured and rescaled.

    Every use is a product, one layer per turn of a scan over stacked kernels, along the same axes,
    with the units in the kernel's order; in execution order.
    """
    facts, layers = program.facts, dict[Path, list[Layer]]()
    for layer in program.layers.values():
        if not layer.product.biased:
            layers.setdefault(layer.product.form.path, []).append(layer)

    def is_measurable(path: Path) -> bool:
        uses = [layer.product.use for layer in layers[path]]
        in_scans = all(use.within == ("scan",) * len(use.kernel.scanned) for use in uses)
        is_whole = len(uses) == sum(use.kernel.path == path for use in facts.uses)
        axes = {(use.fan_in, use.kernel.scanned_axes()) for use in uses}
        in_order = len(axes) == 1 and all(use.keeps_units for use in uses)
        return in_scans and is_whole and in_order and path not in facts.changed | facts.met

    return {path: several for path, several in layers.items() if is_measurable(path)}


def biased_kernels(program: Program) -> dict[Path, BiasedKernel]:
    """Returns the measurable kernels with a bias of their own, by path, in execution order."""
    biases, pairs = private_biases(program), dict[Path, BiasedKernel]()
    for path, layers in measurable_kernels(program).items():
        uses = [layer.product.use for layer in layers]
        several = {biases.get(id(use)) for use in uses}
        bias, fan_in, scanned = several.pop(), uses[0].fan_in, uses[0].kernel.scanned_axes()
        if bias and not several and fan_in is not None and scanned is not None:
            is_shared = all(map(shares_inputs, layers))
            pairs[path] = BiasedKernel(bias, fan_in, scanned, len(uses), is_shared)
    return pairs


def shares_inputs(layer: Layer) -> bool:
    """Returns True if every unit of a product reads the same inputs."""
    use, params = layer.product.use, layer.equation.params
    groups = params.get("feature_group_count", 1) * params.get("batch_group_count", 1)
    is_product = layer.equation.primitive.name in PRODUCTS[:2]
    return is_product and groups == 1 and not use.in_groups and use.kernel.scaled is None
