"""Fan-in axes from the modules' own types, where a rule by name would be wrong."""

from typing import Any

from flax import nnx

from jaxnorm._trees._axes import negative_axes
from jaxnorm._trees._layout import Layout, layout_by
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path
from jaxnorm.nnx._edit import check_module


def layout(model: nnx.Module) -> Layout:
    """The layout of an NNX model, from what its modules say of their kernels.

    - ``Linear``, ``Conv`` (grouped and depthwise too): all axes but the last.
    - ``LinearGeneral`` (so the projections of ``MultiHeadAttention``): its input axes; the query's
      kernel (in, heads, head size) has one fan-in axis, the output's (heads, head size, out) two.
    - ``Einsum``: the axes of the kernel that do not appear in the output.
    - ``ConvTranspose``: space and the input channels, wherever ``transpose_kernel`` puts them.
    - ``Embed``: the features: a unit is a token's row.

    Axes that ``nnx.vmap`` or ``nnx.scan`` stacked in front of a kernel are left out of its fan-in.
    Everything else (normalization scales, biases, parameters of other modules) is None.

    Args:
        model: the model, or one of the same structure (``nnx.eval_shape`` of its constructor).

    Returns:
        A layout for the model's parameters in any form: ``nnx.state``, a pure dict, gradients, or
        with reparametrized kernels.

    Raises:
        ValueError: if no module has a kernel that is known, or one has axes that are stacked
            elsewhere than in front of it.
        TypeError: if the model is another library's.

    Example:
        >>> model = nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))
        >>> axes = layout(model)(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
        >>> axes["query"]["kernel"], axes["out"]["kernel"]
        ((-3,), (-3, -2))
    """
    known: dict[Path, Axes] = {}
    for path, module in nnx.iter_modules(model):
        for name, axes in _kernel_axes(module).items():
            kernel = Path(map(str, (*path, name)))
            _check_stacked_in_front(kernel, module, name)
            known[kernel] = axes
    if not known:
        check_module(model)
        raise ValueError(
            f"{type(model).__name__} has no Linear, Conv, ConvTranspose, LinearGeneral, Einsum or "
            "Embed in it; write a layout_from_rules([(regex, axes), ...]) for its kernels."
        )
    return layout_by(lambda path, entry: known.get(path))


def _kernel_axes(module: Any) -> dict[str, Axes]:
    """The fan-in axes of a module's own kernel, by attribute name."""
    match module:
        case nnx.Linear():
            return {"kernel": (-2,)}
        case nnx.Conv():
            return {"kernel": tuple(range(-len(module.kernel_size) - 2, -1))}
        case nnx.ConvTranspose():
            channels = -1 if module.transpose_kernel else -2
            return {"kernel": (*range(-len(module.kernel_size) - 2, -2), channels)}
        case nnx.LinearGeneral():
            inputs, outputs = len(_tuple(module.in_features)), len(_tuple(module.out_features))
            return {"kernel": tuple(range(-inputs - outputs, -outputs))}
        case nnx.Einsum():
            return _einsum(module)
        case nnx.Embed():
            return {"embedding": (-1,)}
    return {}


def _einsum(module: Any) -> dict[str, Axes]:
    operands, output = module.einsum_str.replace(" ", "").split("->")
    letters = operands.split(",")[1]
    # An ellipsis of the kernel stands for as many axes as no letter names, all in the output.
    unnamed = len(module.kernel_shape) - len(letters.replace("...", ""))
    letters = letters.replace("...", "." * unnamed)
    contracted = [axis for axis, letter in enumerate(letters) if letter not in output]
    return {"kernel": negative_axes(contracted, len(letters))} if contracted else {}


def _check_stacked_in_front(path: Path, module: Any, name: str) -> None:
    shape, own = getattr(getattr(module, name), "shape", None), _own_shape(module)
    if shape is not None and tuple(shape[-len(own) :]) != own:
        raise ValueError(
            f"the kernel {path!r} has the shape {tuple(shape)}, and that of one "
            f"{type(module).__name__} is {own}; wanted axes that are stacked in front of it alone. "
            "Stack along axis 0, or use traced_layout(apply, params, *inputs), which finds them."
        )


def _own_shape(module: Any) -> tuple[int, ...]:
    """What a module says of its kernel's shape."""
    if isinstance(module, nnx.Embed):
        return module.num_embeddings, module.features
    if isinstance(module, (nnx.Linear, nnx.LinearGeneral)):
        return (*_tuple(module.in_features), *_tuple(module.out_features))
    return tuple(module.kernel_shape)


def _tuple(features: int | tuple[int, ...]) -> tuple[int, ...]:
    return (features,) if isinstance(features, int) else tuple(features)
