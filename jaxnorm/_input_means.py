"""Means of the inputs of each kernel, as the weights see them: one derivative per product."""

from collections.abc import Collection, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import known_values
from jaxnorm._layout import Layout, kernels_by_path
from jaxnorm._numerics import promote, wide_dtype
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.kernels import BiasedKernel, biased_kernels
from jaxnorm._trace.primitives import PRODUCTS, product_axes
from jaxnorm._trace.reading import Reading, of_reading
from jaxnorm._trace.replay import Collected, Layer, Turns

Values = Float[Array, "..."]

#: Values by the path of a kernel.
ByPath = dict[Path, Values]

#: The pairs of a kernel and its bias, by the path of the kernel.
Pairs = dict[Path, BiasedKernel]


@of_reading
def input_means(
    net: Reading,
    params: PyTree = None,
    *inputs: Any,
    layout: Layout | None = None,
    axis_name: Hashable | None = None,
) -> PyTree:
    """Means of the inputs that each weight of a kernel is multiplied with.

    C = d m_i / d w_i, the derivative of a channel's mean pre-activation, over rows and positions,
    by its weights. For a dense kernel it is the mean of the inputs. For a convolution it is what
    each tap sees: with padding a tap at the border of the kernel sees zeros too, in a kernel of
    stride or dilation a part of the positions, and a tap of a transposed convolution the positions
    of its phase. A kernel is measured if each of its products gets one bias, of one value per
    channel, which the model adds to the product directly and reads nowhere else.

    Args:
        net: the model, as `read` returns it.
        params: current parameters, if they are not the reading's.
        *inputs: the current minibatch and the other arguments, if they are not the reading's.
        layout: the kernels that are measured, if they are plain and have a bias of their own; None
            for the reading's.
        axis_name: under pmap and shard_map, the axis of the devices, over which means are averaged.

    Returns:
        A tree of the structure of ``params``: at each measured kernel C in float32 or wider, of the
        kernel's rank, with size 1 along the axes of channels that read the same inputs; MaskedNode
        elsewhere. A kernel that is used several times has the average over its uses.

    Raises:
        ValueError: for a layout that constrains nothing, or of another structure.
        TypeError: if ``net`` is not a reading.

    Nothing but a forward pass and one product with a constant per kernel is computed. Under jit
    the means are those of the whole minibatch, however it is sharded.

    Example:
        >>> from jaxnorm import read
        >>> import jax
        >>> params = {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}
        >>> apply = lambda p, x: jax.nn.relu(x @ p["kernel"] + p["bias"][None])
        >>> means = input_means(read(apply, params, jnp.array([[1.0, 2.0], [3.0, 6.0]])))
        >>> means["kernel"].tolist()
        [[2.0], [4.0]]

    Source: LeCun et al. 1998, "Efficient BackProp", section 4.3, centers inputs by their means.
    """
    net = net.now(params, inputs)
    pairs = pairs_of(net, layout)
    values = measured(net.running(pairs), pairs, axis_name)
    return map_entries(lambda path, _: values.get(path, optax.MaskedNode()), net.params)


def pairs_of(net: Reading, layout: Layout | None) -> Pairs:
    """Returns the plain kernels of a layout that have a plain bias of their own; None for all."""
    kernels = None if layout is None else kernels_by_path(layout, net.plain)
    plain = {path for path, entry in named_entries(net.params) if hasattr(entry, "dtype")}
    pairs = biased_kernels(net.program(kernels))
    return {path: pair for path, pair in pairs.items() if {path, pair.bias} <= plain}


def measured(program: Program, pairs: Pairs, axis_name: Hashable | None = None) -> ByPath:
    """Returns the input means of these kernels by path: the gradients of their channels' means.

    The gradient of the sum of all means by the kernels, with every product cut off from the
    products after it, has each kernel's own derivative, in float32 or wider, whatever the types
    that the program computes with.
    """
    parameters = program.parameters()

    def total(kernels: ByPath) -> Values:
        collected = program.with_parameters(kernels).run(replace)[1]
        return sum((x.sum() for x in collected.values()), jnp.zeros(()))

    def replace(
        layer: Layer, operands: list[Any], result: Any, collected: Collected, turns: Turns
    ) -> tuple[Any, Collected]:
        if layer.product.biased or layer.path not in pairs:
            return result, collected
        value = _mean(layer, operands, result, pairs[layer.path].is_shared)
        total = collected.get(layer.path, jnp.zeros((), value.dtype)) + value
        return jax.lax.stop_gradient(result), collected | {layer.path: total}

    gradients = jax.grad(total)({path: promote(parameters[path]) for path in pairs})
    means = {path: _of_kernel(gradients[path], pair) for path, pair in pairs.items()}
    return means if axis_name is None else jax.lax.pmean(means, axis_name)


def _mean(layer: Layer, operands: list[Any], result: Values, is_shared: bool) -> Values:
    """Returns the sum of the means of a product's units; of units that are alike, of one."""
    wide = _first_unit(layer, operands) if is_shared else _wide_product(layer, operands, result)
    output = promote(wide)
    units = layer.product.use.unit_axes
    return output.mean([axis for axis in range(output.ndim) if axis not in units]).sum()


def averaged(old: PyTree, values: ByPath, decay: float | Float[Array, ""]) -> PyTree:
    """Returns measured values that moved towards new ones: d old + (1 - d) new.

    A value that is not finite now would never leave the average, so the old one stays.
    """

    def average(path: Path, x: Any) -> Any:
        if is_absent(x):
            return x
        return jnp.where(jnp.isfinite(values[path]), decay * x + (1 - decay) * values[path], x)

    return map_entries(average, old)


def _wide_product(layer: Layer, operands: list[Any], result: Values) -> Values:
    """Returns a product in float32 or wider; the result itself if it is, or if a call makes it."""
    is_wide = result.dtype == wide_dtype(result.dtype)
    if is_wide or layer.equation.primitive.name not in PRODUCTS:
        return result
    return _bound(layer.equation, _widened(operands))


def check_finite_statistics(values: ByPath, name: str) -> None:
    """Raises ValueError for values that a minibatch made infinite or NaN."""
    known = {path: known_values(x) for path, x in values.items()}
    bad = [path for path, x in known.items() if x is not None and not np.isfinite(x).all()]
    if bad:
        raise ValueError(
            f"{name} measured values that are infinite or NaN at the inputs of {listed(bad)}; "
            "wanted a minibatch and parameters that are finite. Look for NaN in the inputs."
        )


def check_same_tree(pairs: Collection[Path], tree: PyTree, name: str) -> None:
    """Raises ValueError for a tree with none of these kernels, unless a mask hides them."""
    entries = named_entries(tree)
    paths = {tuple(path) for path, _ in entries}
    hidden = {tuple(path) for path, x in entries if is_absent(x)}
    if pairs and not any({*_prefixes(path)} & hidden or path in paths for path in pairs):
        raise ValueError(
            f"{name} got a tree without the kernels {listed(pairs)}; its paths are "
            f"{listed(path for path, _ in entries)}. Pass the parameters that the optimizer was "
            "made with. For a tree around them, as {'params': raw} or optax.LookaheadParams, put "
            "the wrapper around the optimizer that you got: optax.lookahead(tx, ...)."
        )


def _prefixes(path: Path) -> list[tuple[str, ...]]:
    return [path[:length] for length in range(len(path) + 1)]


def _first_unit(layer: Layer, operands: list[Any]) -> Values:
    """Returns the product with the first unit alone, in float32 or wider."""
    equation, side = layer.equation, layer.product.use.side
    _, _, places = product_axes(equation, side)
    wide = _widened(operands)
    one = tuple(slice(1) if axis in places else slice(None) for axis in range(wide[side].ndim))
    wide[side] = wide[side][one]
    return _bound(equation, wide)


def _widened(operands: list[Any]) -> list[Any]:
    """Returns the operands of a product with both factors in one type, float32 or wider."""
    left, right, *sizes = operands
    wide = wide_dtype(left.dtype, right.dtype)
    return [left.astype(wide), right.astype(wide), *sizes]


def _bound(equation: Any, operands: list[Any]) -> Values:
    """Returns the result of an equation of a product, in the type of other operands."""
    options = equation.params | {"preferred_element_type": None}
    if "out_sharding" in options:
        options["out_sharding"] = None
    return equation.primitive.bind(*operands, **options)  # type: ignore[no-any-return]


def _of_kernel(gradient: Values, pair: BiasedKernel) -> Values:
    """Returns the average over a kernel's uses; of units that are alike, once."""
    free = {*range(-gradient.ndim, 0)} - {*pair.fan_in, *pair.layers}
    units = tuple(sorted(free)) if pair.is_shared else ()
    return (gradient.sum(units, keepdims=True) if units else gradient) / pair.uses
