"""What a layout that goes by names is known to get wrong, and how that is seen."""

import re
import warnings
from collections.abc import Callable
from typing import Any

from jaxtyping import PyTree

from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path, entries, is_absent, is_node, rebuild_entries

#: ``(path, shape, shape of the bias beside it or None) -> what is wrong``, or None.
Doubt = Callable[[Path, Axes, Axes | None], str | None]

_INSTEAD = (
    "Use jaxnorm.traced_layout(apply, params, *inputs) or layout_from_rules([(regex, axes), ...]), "
    "or exclude it."
)
_TABLE = re.compile(r"emb|^wte$|^wpe$|lookup", re.IGNORECASE)
_NORM = re.compile(r"norm|^ln", re.IGNORECASE)
_LIFTED = re.compile(r"scan|vmap", re.IGNORECASE)

#: Three axes of space, the inputs and the outputs: no convolution has more.
_MOST_AXES = 5


class Passed:
    """An array's shape and type, of a leaf that is left out anyway: it is not doubted."""

    def __init__(self, array: Any) -> None:
        self.shape, self.dtype, self.ndim = tuple(array.shape), array.dtype, array.ndim


def undoubted(params: PyTree) -> PyTree:
    """The shapes alone, for those who ask a layout which leaves are kernels, not for their axes."""
    return rebuild_entries(
        params, [Passed(entry) if is_array(entry) else entry for _, entry in entries(params)]
    )


def warn(named: list[tuple[Path, Any]], doubt: Doubt) -> None:
    """One UserWarning for each leaf that ``doubt`` has something to say about."""
    shapes = {path: tuple(x.shape) for path, x in named if is_array(x)}
    for path, leaf in named:
        if path not in shapes or isinstance(leaf, Passed):
            continue
        wrong = doubt(path, shapes[path], shapes.get(path.beside("bias")))
        if wrong is not None:
            text = f"the leaf {path!r} of shape {shapes[path]} {wrong}. {_INSTEAD}"
            # From this line whoever calls, so that Python's own filter shows each text once.
            warnings.warn(text, UserWarning, stacklevel=1)


def doubt_flax(path: Path, shape: Axes, bias: Axes | None) -> str | None:
    """Doubts about `flax_layout`: all axes but the last of what is named ``kernel``."""
    if path.name != "kernel" or len(shape) < 2:
        return _adapter(path, shape)
    if len(shape) > 2 and path[-2:-1] and path[-2] in ("query", "key", "value"):
        return "looks like an attention projection: its heads are no fan-in, as flax_layout has it"
    if bias is not None and len(bias) > 1:
        if shape[-len(bias) :] == bias:
            return f"has units of shape {bias}, as its bias says; flax_layout takes the last axis"
        return _stacked("flax_layout")
    if bias is not None and bias != shape[-1:]:
        return (
            f"has a bias of shape {bias}, so its units are not its last axis, as in flax_layout "
            "(a transposed convolution with transpose_kernel has them before it)"
        )
    lifted = len(shape) > 2 and bias is None and any(_LIFTED.search(key) for key in path)
    return _stacked("flax_layout") if lifted or len(shape) > _MOST_AXES else None


def doubt_torch(path: Path, shape: Axes, bias: Axes | None) -> str | None:
    """Doubts about `torch_layout`: all axes but the first of what is named ``weight``."""
    if len(shape) < 2:
        return None
    if path.name != "weight":
        if "weight" in path.name:
            return "is no kernel to torch_layout, which wants the name weight (a recurrent cell's?)"
        return _adapter(path, shape)
    parent = path[-2] if len(path) > 1 else ""
    if bias == shape or (bias is None and _NORM.search(parent)):
        return "looks like a normalization's scale; torch_layout takes it for a kernel"
    if _TABLE.search(parent) and bias is None and len(shape) == 2:
        return "looks like an embedding, whose rows are looked up; torch_layout makes them units"
    units = _without_ones(bias)
    if units is not None and len(units) > 1:
        return _stacked("torch_layout")
    if units not in (None, shape[:1], ()):
        return (
            f"has a bias of shape {bias}, so its units are not its first axis, as in torch_layout "
            "(a transposed convolution of PyTorch has them second)"
        )
    return _stacked("torch_layout") if len(shape) > _MOST_AXES else None


def _adapter(path: Path, shape: Axes) -> str | None:
    if path.name.lower().startswith("lora") and len(shape) > 1:
        return "looks like a LoRA factor: it is left free, and a kernel plus it is on no set"
    return None


def _stacked(layout: str) -> str:
    return (
        f"looks like the kernels of several layers, stacked, whose axis {layout} takes for theirs"
    )


def _without_ones(bias: Axes | None) -> Axes | None:
    """Equinox's convolutions have biases of shape (out, 1, 1)."""
    while bias and bias[-1] == 1:
        bias = bias[:-1]
    return bias


def is_array(entry: Any) -> bool:
    """Whether an entry is an array, or its shape: no node, and there."""
    return not (is_absent(entry) or is_node(entry)) and hasattr(entry, "shape")
