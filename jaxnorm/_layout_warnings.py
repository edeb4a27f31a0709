"""Warnings of parameters whose fan-in a layout by names does not know."""

import re
from collections.abc import Callable

from jaxtyping import PyTree

from jaxnorm._checks import warn
from jaxnorm._paths import Path, named_entries

Shape = tuple[int, ...]

#: Shapes of all arrays by path.
Shapes = dict[Path, Shape]

#: ``(path, shapes)``: True if a layout by names is wrong for the leaf.
Doubt = Callable[[Path, Shapes], bool]

_TABLE = re.compile(r"emb|^wte$|^wpe$|lookup", re.IGNORECASE)
_NORM = re.compile(r"norm|^ln", re.IGNORECASE)
_TRANSPOSED = re.compile(r"transpose|deconv", re.IGNORECASE)
_LIFTED = re.compile(r"scan|vmap", re.IGNORECASE)
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)

#: Three axes of space, the inputs and the outputs: the axes of the largest convolution.
_MOST_AXES = 5


def warn_if_doubtful(params: PyTree, is_doubtful: Doubt) -> None:
    """Warns once per leaf at which a layout by names is known to be wrong."""
    shapes = {path: tuple(x.shape) for path, x in named_entries(params) if hasattr(x, "shape")}
    for path, shape in shapes.items():
        bias = shapes.get(path.beside("bias"))
        if is_doubtful(path, shapes):
            beside = "" if bias is None else f", beside a bias of shape {bias}"
            text = (
                f"a layout by names does not know the fan-in of the leaf {path!r} of shape "
                f"{shape}{beside}. It may be an attention projection, stacked layers, a transposed "
                "convolution (whose units are phases of its stride), an embedding, a "
                "normalization's scale, a recurrent cell's weight or a LoRA factor. Use "
                "jaxnorm.traced_layout(read(apply, params, *inputs)) or "
                "layout_from_rules([(regex, axes), ...]), or exclude it."
            )
            warn(text)


def is_doubtful_in_flax(path: Path, shapes: Shapes) -> bool:
    """Returns True for a leaf whose last axis is not its units, by its name, rank or neighbours."""
    shape, bias = shapes[path], shapes.get(path.beside("bias"))
    if path.name != "kernel" or len(shape) < 2:
        return _is_adapter(path, shape)
    doubtful = _is_transposed(path, shape) or len(shape) > _MOST_AXES
    if bias is not None or len(shape) == 2:
        return doubtful or bias not in (None, shape[-1:])
    heads = path[-2:-1] and path[-2] in ("query", "key", "value")
    lifted = any(_LIFTED.search(key) for key in path) or _is_stacked(path, shapes)
    # Without a bias a 1-D convolution has the axes of stacked layers, or of a projection to heads.
    is_named = any(_CONVOLUTION.search(key) for key in path) or _joins_heads(path, shapes)
    unknown = len(shape) == 3 and not is_named
    return bool(doubtful or heads or lifted or unknown)


def _is_stacked(path: Path, shapes: Shapes) -> bool:
    """Returns True if a scale or bias of the same block has an axis of as many layers."""
    block = path[:-2]
    near = [(x.name, shape) for x, shape in shapes.items() if block and x[: len(block)] == block]
    affine = [shape for name, shape in near if name in ("scale", "bias") and len(shape) > 1]
    return shapes[path][0] in [shape[0] for shape in affine]


def _joins_heads(path: Path, shapes: Shapes) -> bool:
    """Returns True for the output of an attention, which sums over the heads of its neighbours."""
    beside = (
        x for other, x in shapes.items() if other[:-2] == path[:-2] and other[-1:] == path[-1:]
    )
    return any(len(shape) == 3 and shape[-2:] == shapes[path][:2] for shape in beside)


def is_doubtful_in_torch(path: Path, shapes: Shapes) -> bool:
    """Returns True for a leaf whose first axis is not its units, by its name, rank or bias."""
    shape, bias = shapes[path], shapes.get(path.beside("bias"))
    if path.name != "weight" or len(shape) < 2:
        return len(shape) > 1 and ("weight" in path.name or _is_adapter(path, shape))
    parent = path[-2] if bias is None and len(path) > 1 else ""
    table = _TABLE.search(parent) and len(shape) == 2
    by_name = _NORM.search(parent) or table or _is_transposed(path, shape)
    units = bias
    while units and units[-1] == 1:  # Equinox's convolutions have biases of shape (out, 1, 1)
        units = units[:-1]
    return bool(by_name or len(shape) > _MOST_AXES or units not in (None, shape[:1], ()))


def _is_transposed(path: Path, shape: Shape) -> bool:
    """Returns True for a convolution whose name says that it is transposed.

    With a stride its units are phases and channels, and PyTorch puts the inputs first.
    """
    return len(shape) > 2 and any(_TRANSPOSED.search(key) for key in path)


def _is_adapter(path: Path, shape: Shape) -> bool:
    return path.name.lower().startswith("lora") and len(shape) > 1
