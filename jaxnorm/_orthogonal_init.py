"""Orthogonal initial weights: each kernel as one matrix, a convolution's at its center."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import POSITIVE, check_number
from jaxnorm._layout import Layout, kernels_by_path
from jaxnorm._matrices import as_matrices, singular_value
from jaxnorm._mesh import whole
from jaxnorm._node import Axes, is_node
from jaxnorm._numerics import promote
from jaxnorm._paths import Path, map_entries
from jaxnorm._trace.interpret import Program
from jaxnorm._trace.reading import Reading, of_reading

Values = Float[Array, "..."]


@of_reading
def orthogonal_init(
    net: Reading,
    *,
    layout: Layout | None = None,
    gain: float = 1.0,
) -> PyTree:
    """Replaces each random kernel by an orthogonal one; a convolution's by one at its center.

    W <- gain s Q of W = Q R, the fan-in x units matrix, with R_ii > 0 and s = sqrt(max(1, units /
    fan-in)), so that with a gain of 1 pre-activations have the mean square of the layer's inputs.
    Normally distributed W make Q uniform over the orthogonal matrices. A convolution with a stride
    of 1 keeps its center tap alone (delta-orthogonal), one with a stride of s the s taps at its
    center, along each axis: its positions then share no pixel, and leave none out, so that, away
    from the borders, it preserves the distances of images as the matrix does those of rows. A patch
    embedding, whose kernel is as large as its stride, is a matrix of all its taps. A kernel that is
    smaller than its stride does not see all pixels: it preserves the distances of those it sees.

    Args:
        net: the model at its random parameters, as `read` returns it: plain kernels, which are the
            source of randomness.
        layout: which leaves are kernels; None for the reading's.
        gain: the factor of every kernel: 1 for shaped activations, tanh and selu, and sqrt(2) for
            relu.

    Returns:
        A tree of the same structure, shapes and types. Each layer of a stack that the model scans
        over is orthogonal by itself; a kernel of zeros stays zero.

    Raises:
        ValueError: for reparametrized kernels, for kernels with a part for each group of inputs (a
            grouped convolution, the heads of an attention output), for those that the model
            reshapes, transposes, rounds or does not multiply its input by, and for convolutions
            with a stride and dilated taps or dilated inputs (a transposed convolution); and for a
            gain that is not positive.

    Call it once, before sharding: a sharded kernel costs collectives under jit, and inside
    shard_map each device would make its own part orthogonal.

    Example:
        >>> from jaxnorm import read
        >>> import jax
        >>> params = {"kernel": jax.random.normal(jax.random.key(0), (16, 8))}
        >>> x = jnp.ones((1, 16))
        >>> kernel = orthogonal_init(read(lambda p, x: x @ p["kernel"], params, x))["kernel"]
        >>> bool(jnp.allclose(kernel.T @ kernel, jnp.eye(8), atol=1e-5))
        True

    Source: Saxe et al. 2014 (arXiv 1312.6120); delta-orthogonal kernels are those of Xiao et al.
    2018 (arXiv 1806.05393), their scale that of Martens et al. 2021 (arXiv 2110.01765).
    """
    check_number(gain, POSITIVE, "gain", "2**0.5 for relu")
    kernels = kernels_by_path(layout or net.layout, net.plain)
    matrices = _matrix_kernels(net.program(kernels))

    def orthogonal(path: Path, entry: Any) -> Any:
        if path not in kernels:
            return entry
        if is_node(entry) or path not in matrices:
            raise ValueError(
                f"the kernel {path!r} is reparametrized, reshaped, transposed or rounded before "
                "its product, not multiplied with the inputs, has a part for each group of them, "
                "or is of a transposed convolution with a stride, or of one with a stride and a "
                "dilation; wanted a plain kernel of one matrix product or convolution. Call "
                "orthogonal_init before reparametrize, and leave other kernels out of the layout."
            )
        return _orthogonal(entry, matrices[path], gain)

    return map_entries(orthogonal, net.params)


class MatrixKernel(NamedTuple):
    """Kernel that is one matrix, or one per layer of a stack, at some of its taps.

    Attributes:
        fan_in: the fan-in axes, the axes of taps included.
        stacked: the number of axes of layers.
        taps: the taps along each axis of positions, those that are not zero.
    """

    fan_in: Axes
    stacked: int
    taps: dict[int, slice]


def _matrix_kernels(program: Program) -> dict[Path, MatrixKernel]:
    kernels: dict[Path, MatrixKernel] = {}
    for layer in program.layers.values():
        use, params = layer.product.use, layer.equation.params
        in_groups = use.in_groups or params.get("feature_group_count", 1) > 1
        is_whole = use.kernel.is_unchanged and not use.kernel.rounded
        taps = _central_taps(layer.equation)
        if use.fan_in and is_whole and taps is not None and not (layer.product.biased or in_groups):
            kernels[use.kernel.path] = MatrixKernel(use.fan_in, len(use.kernel.scanned), taps)
    return kernels


def _central_taps(equation: Any) -> dict[int, slice] | None:
    """Returns as many taps at the center as the stride has pixels, by the axis of the kernel.

    None for a convolution of which these taps do not partition the pixels.
    """
    if equation.primitive.name != "conv_general_dilated":
        return {}
    params, kernel = equation.params, equation.invars[1].aval
    strides, dilations = params["window_strides"], (params["lhs_dilation"], params["rhs_dilation"])
    if any(size > 1 for size in dilations[0]) or (max(strides) > 1 and max(dilations[1]) > 1):
        return None
    taps: dict[int, slice] = {}
    for axis, stride in zip(params["dimension_numbers"].rhs_spec[2:], strides, strict=True):
        count = min(stride, kernel.shape[axis])
        first = (kernel.shape[axis] - count) // 2
        taps[axis - kernel.ndim] = slice(first, first + count)
    return taps


def _orthogonal(kernel: Values, matrix: MatrixKernel, gain: float) -> Values:
    """Returns zeros around the center, which is made orthogonal."""
    center = tuple(matrix.taps.get(axis, slice(None)) for axis in range(-kernel.ndim, 0))

    def at_center(kernel: Values) -> Values:
        matrices, restore = as_matrices(promote(kernel[center]), matrix.fan_in, matrix.stacked)
        is_wide = matrices.shape[-2] < matrices.shape[-1]
        q, r = jnp.linalg.qr(matrices.mT if is_wide else matrices)
        q = q * jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
        values = restore((q.mT if is_wide else q) * singular_value(matrices, gain**2))
        return jnp.zeros_like(kernel).at[center].set(values.astype(kernel.dtype))

    return whole(at_center)(kernel)
