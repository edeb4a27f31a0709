"""What a layout that goes by names is known to get wrong, and how that is seen."""

import re
import warnings
from collections.abc import Callable
from typing import Any

from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path

#: ``(path, shape, shape of the bias beside it or None)``: whether the layout is wrong there.
Doubt = Callable[[Path, Axes, Axes | None], bool]

_TABLE = re.compile(r"emb|^wte$|^wpe$|lookup", re.IGNORECASE)
_NORM = re.compile(r"norm|^ln", re.IGNORECASE)
_LIFTED = re.compile(r"scan|vmap", re.IGNORECASE)

#: Three axes of space, the inputs and the outputs: no convolution has more.
_MOST_AXES = 5


def warn(named: list[tuple[Path, Any]], doubt: Doubt) -> None:
    """One UserWarning for each leaf that is in doubt."""
    shapes = {path: tuple(x.shape) for path, x in named if hasattr(x, "shape")}
    for path, shape in shapes.items():
        bias = shapes.get(path.beside("bias"))
        if doubt(path, shape, bias):
            text = (
                f"the leaf {path!r} of shape {shape}, beside a bias of shape {bias}, is one "
                "whose fan-in a layout by names does not know (an attention projection, stacked "
                "layers, a transposed kernel, an embedding, a normalization's scale, a recurrent "
                "cell's weight or a LoRA factor). Use jaxnorm.traced_layout(apply, params, "
                "*inputs) or layout_from_rules([(regex, axes), ...]), or exclude it."
            )
            # From this line whoever calls, so that Python's own filter shows each text once.
            warnings.warn(text, UserWarning, stacklevel=1)


def doubt_flax(path: Path, shape: Axes, bias: Axes | None) -> bool:
    """Whether `flax_layout` is wrong: all axes but the last of what is named ``kernel``."""
    if path.name != "kernel" or len(shape) < 2:
        return _is_adapter(path, shape)
    heads = len(shape) > 2 and path[-2:-1] and path[-2] in ("query", "key", "value")
    lifted = len(shape) > 2 and bias is None and any(_LIFTED.search(key) for key in path)
    return bool(heads or lifted or len(shape) > _MOST_AXES or bias not in (None, shape[-1:]))


def doubt_torch(path: Path, shape: Axes, bias: Axes | None) -> bool:
    """Whether `torch_layout` is wrong: all axes but the first of what is named ``weight``."""
    if path.name != "weight" or len(shape) < 2:
        return len(shape) > 1 and ("weight" in path.name or _is_adapter(path, shape))
    parent = path[-2] if bias is None and len(path) > 1 else ""
    by_name = _NORM.search(parent) or (_TABLE.search(parent) and len(shape) == 2)
    units = bias
    while units and units[-1] == 1:  # Equinox's convolutions have biases of shape (out, 1, 1)
        units = units[:-1]
    return bool(by_name or len(shape) > _MOST_AXES or units not in (None, shape[:1], ()))


def _is_adapter(path: Path, shape: Axes) -> bool:
    return path.name.lower().startswith("lora") and len(shape) > 1
