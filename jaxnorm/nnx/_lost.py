"""Warnings of what a network loses with its BatchNorm layers."""

from typing import Any

from jaxnorm._checks import warn
from jaxnorm._paths import Path, listed
from jaxnorm.nnx._modules import ModulePath, is_all


def warn_of_lost_statistics(norms: dict[ModulePath, Any]) -> None:
    """Warns of running statistics that a training has moved, and names the way to keep them."""
    moved = [path for path, norm in norms.items() if _is_moved(norm)]
    if moved:
        warn(
            f"{len(moved)} of {len(norms)} BatchNorm layers ({_names(moved)}) have running "
            "statistics other than mean 0 and variance 1, as after a training. The new model is "
            "without them, so it does not compute what this one does in evaluation. Write them "
            "into the kernels first: model, remaining = jaxnorm.nnx.fold_batch_norm(model, "
            "*inputs). The layers in remaining need a replacement= that makes their mean and var "
            "part of a layer. Ignore this for a new training of all parameters."
        )


def _is_moved(norm: Any) -> bool:
    """Returns True if statistics are known, and are not those of a new layer."""
    starts = ((norm.mean, 0), (norm.var, 1))
    return any(x is not None and is_all(x, start) is False for x, start in starts)


def warn_of_raw_inputs(paths: list[ModulePath]) -> None:
    """Warns of normalizations that standardized the data, and names the ways to keep that."""
    if paths:
        warn(
            f"the BatchNorm layers {_names(paths)} read the network's inputs, not what a kernel "
            "makes of them: they standardize the data, and nothing does in the new model. "
            "Standardize each feature in front of it, (x - mean) / deviation over the training "
            "rows; or keep such a layer, with its statistics measured on training rows, by a "
            "replacement= that returns it. Ignore this for data that are standardized already."
        )


def _names(paths: list[ModulePath]) -> str:
    return listed([Path(map(str, path)) for path in paths])
