"""Warnings of parameters whose fan-in a layout by names does not know."""

import re
from collections.abc import Callable

from jaxtyping import PyTree

from jaxnorm._checks import warn
from jaxnorm._paths import Path, named_entries

Shape = tuple[int, ...]

#: ``(path, shape, shape of the bias beside it or None)``: True if a layout by names is wrong.
Doubt = Callable[[Path, Shape, Shape | None], bool]

_TABLE = re.compile(r"emb|^wte$|^wpe$|lookup", re.IGNORECASE)
_NORM = re.compile(r"norm|^ln", re.IGNORECASE)
_TRANSPOSED = re.compile(r"transpose|deconv", re.IGNORECASE)
_LIFTED = re.compile(r"scan|vmap", re.IGNORECASE)

#: Three axes of space, the inputs and the outputs: the axes of the largest convolution.
_MOST_AXES = 5


def warn_if_doubtful(params: PyTree, is_doubtful: Doubt) -> None:
    """Warns once per leaf at which a layout by names is known to be wrong."""
    shapes = {path: tuple(x.shape) for path, x in named_entries(params) if hasattr(x, "shape")}
    for path, shape in shapes.items():
        bias = shapes.get(path.beside("bias"))
        if is_doubtful(path, shape, bias):
            beside = "" if bias is None else f", beside a bias of shape {bias}"
            text = (
                f"a layout by names does not know the fan-in of the leaf {path!r} of shape "
                f"{shape}{beside}. It may be an attention projection, stacked layers, a transposed "
                "convolution (whose units are phases of its stride), an embedding, a "
                "normalization's scale, a recurrent cell's weight or a LoRA factor. Use "
                "jaxnorm.traced_layout(apply, params, *inputs) or "
                "layout_from_rules([(regex, axes), ...]), or exclude it."
            )
            warn(text)


def is_doubtful_in_flax(path: Path, shape: Shape, bias: Shape | None) -> bool:
    """Returns True for a leaf whose last axis is not its units, by its name, rank or bias."""
    if path.name != "kernel" or len(shape) < 2:
        return _is_adapter(path, shape)
    heads = len(shape) > 2 and path[-2:-1] and path[-2] in ("query", "key", "value")
    lifted = len(shape) > 2 and bias is None and any(_LIFTED.search(key) for key in path)
    doubtful = heads or lifted or _is_transposed(path, shape)
    return bool(doubtful or len(shape) > _MOST_AXES or bias not in (None, shape[-1:]))


def is_doubtful_in_torch(path: Path, shape: Shape, bias: Shape | None) -> bool:
    """Returns True for a leaf whose first axis is not its units, by its name, rank or bias."""
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
