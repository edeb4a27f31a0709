"""Fan-in axes by module type, where a rule by name would be wrong."""

import math
from typing import Any

from flax import nnx

from jaxnorm._axes import negative_axes
from jaxnorm._layout import Layout, layout_by
from jaxnorm._node import Axes
from jaxnorm._paths import Path
from jaxnorm._phases import phased
from jaxnorm.nnx._modules import check_module


def layout(model: nnx.Module) -> Layout:
    """Layout of an NNX model, by the types of its modules.

    - ``Linear``, ``Conv`` (grouped and depthwise too): all axes but the last.
    - ``LinearGeneral`` (so the projections of ``MultiHeadAttention``): its input axes; the query's
      kernel (in, heads, head size) has one fan-in axis, the output's (heads, head size, out) two.
    - ``Einsum``: the axes of the kernel that do not appear in the output.
    - ``ConvTranspose``: space and the input channels, wherever ``transpose_kernel`` puts them; with
      a stride a unit is a phase and a channel, as in `jaxnorm.traced_layout`.
    - ``Embed``: the features: a unit is a token's row.

    Axes that ``nnx.vmap`` or ``nnx.scan`` stacked in front of a kernel are no part of its fan-in.
    Everything else (normalization scales, biases, parameters of other modules) is None.

    Args:
        model: the model, or one of the same structure (``nnx.eval_shape`` of its constructor).

    Returns:
        A layout for the model's parameters in any form: ``nnx.state``, a pure dict, gradients, or
        with reparametrized kernels.

    Raises:
        ValueError: if no module has a known kernel, or if axes are stacked elsewhere than in front
            of one.
        TypeError: if the model is another library's.

    Nothing is computed, so jit, pmap, shard_map and sharding change nothing.

    Example:
        >>> model = nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))
        >>> axes = layout(model)(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
        >>> axes["query"]["kernel"], axes["out"]["kernel"]
        ((-3,), (-3, -2))
    """
    known: dict[Path, Axes] = {}
    for path, module in nnx.iter_modules(model):
        name, axes, declared = _kernel_of(module)
        if axes:
            kernel = Path(map(str, (*path, name)))
            _check_stacked_in_front(kernel, getattr(module, name), module, declared)
            known[kernel] = axes
    if not known:
        check_module(model)
        raise ValueError(
            f"{type(model).__name__} has no Linear, Conv, ConvTranspose, LinearGeneral, Einsum or "
            "Embed in it; write a layout_from_rules([(regex, axes), ...]) for its kernels."
        )
    return layout_by(lambda path, entry: known.get(path))


def _kernel_of(module: Any) -> tuple[str, Axes, tuple[int, ...]]:
    """Returns the name of a module's kernel, its fan-in axes and its shape, as the module says.

    There are no axes if the module has no kernel, or one that nothing is summed over.
    """
    match module:
        case nnx.Linear() | nnx.LinearGeneral():
            inputs, outputs = _tuple(module.in_features), _tuple(module.out_features)
            shape = (*inputs, *outputs)
            return "kernel", tuple(range(-len(shape), -len(outputs))), shape
        case nnx.Conv():
            shape = tuple(module.kernel_shape)
            return "kernel", tuple(range(-len(shape), -1)), shape
        case nnx.ConvTranspose():
            shape = tuple(module.kernel_shape)
            channels = -1 if module.transpose_kernel else -2
            positions = range(-len(shape), -2)
            strides = dict(zip(positions, _steps(module, len(positions)), strict=True))
            strides = {axis: step for axis, step in strides.items() if shape[axis] > 1}
            return "kernel", phased((*positions, channels), strides), shape
        case nnx.Einsum():
            return "kernel", _contracted_axes(module), tuple(module.kernel_shape)
        case nnx.Embed():
            return "embedding", (-1,), (module.num_embeddings, module.features)
    return "", (), ()


def _contracted_axes(module: nnx.Einsum) -> Axes:
    operands, output = module.einsum_str.replace(" ", "").split("->")
    letters = operands.split(",")[1]
    # An ellipsis of the kernel stands for all axes that no letter names, which are in the output.
    unnamed = len(module.kernel_shape) - len(letters.replace("...", ""))
    letters = letters.replace("...", "." * unnamed)
    axes = [axis for axis, letter in enumerate(letters) if letter not in output]
    return negative_axes(axes, len(letters)) if axes else ()


def _check_stacked_in_front(
    path: Path, kernel: Any, module: nnx.Module, declared: tuple[int, ...]
) -> None:
    """Raises ValueError for a kernel whose last axes are not those that the module declares."""
    shape = tuple(getattr(kernel, "shape", declared))
    if shape[-len(declared) :] != declared:
        raise ValueError(
            f"the kernel {path!r} has the shape {shape}, and that of one {type(module).__name__} "
            f"is {declared}; wanted axes that are stacked in front of it alone. Stack along axis "
            "0, or use traced_layout(read(apply, params, *inputs)), which finds them."
        )


def _steps(module: nnx.ConvTranspose, ndim: int) -> list[int]:
    """Returns how many taps lie between two that meet in one output, along each axis of space."""
    strides, dilations = (
        ndim * (x,) if isinstance(x, int) else tuple(x or ndim * (1,))
        for x in (module.strides, module.kernel_dilation)
    )
    return [
        stride // math.gcd(stride, taps) for stride, taps in zip(strides, dilations, strict=True)
    ]


def _tuple(features: int | tuple[int, ...]) -> tuple[int, ...]:
    return (features,) if isinstance(features, int) else tuple(features)
