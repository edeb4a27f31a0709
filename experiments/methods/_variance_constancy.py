"""The variance constancy loss as a part of a method: its settings, parameters and forward pass."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Float, PyTree

from experiments.methods._hidden import hidden_kernels
from jaxnorm.losses import (
    collect_preactivations,
    initial_betas,
    positive,
    total_variance_constancy,
)

#: The parameters' entry for the raw betas, beside the network's own.
BETAS = "betas"


class VarianceConstancy(NamedTuple):
    """The settings of the loss.

    Attributes:
        sample_size: n, the samples of each of the two subsets.
        weight: what the loss is multiplied by.
        clip: the largest norm of a layer's gradient.
        per_channel: whether a unit of a convolution is a channel; else a channel at a position.
    """

    sample_size: int = 5
    weight: float = 0.01
    clip: float = 1.0
    per_channel: bool = False

    @property
    def sample_axes(self) -> tuple[int, ...] | None:
        """As `jaxnorm.losses.variance_constancy_loss` takes them."""
        return None if self.per_channel else (0,)


def with_betas(
    params: PyTree, setting: VarianceConstancy, apply: Callable[..., PyTree], X: Array
) -> PyTree:
    """The parameters with one beta for each unit of each hidden layer."""
    _, layers = jax.eval_shape(lambda: _collect(apply, params, X, None))
    return {**params, BETAS: initial_betas(layers, sample_axes=setting.sample_axes)}


def without_betas(params: PyTree) -> PyTree:
    """The network's own parameters."""
    return {name: entry for name, entry in params.items() if name != BETAS}


def forward_with_loss(
    apply: Callable[..., PyTree],
    params: PyTree,
    betas: PyTree,
    setting: VarianceConstancy,
    X: Array,
    groups: int = 1,
) -> tuple[PyTree, Float[Array, ""]]:
    """What ``apply(params, X)`` returns, and the weighted loss of its hidden pre-activations.

    ``groups`` contiguous parts of the rows each have a pair of samples.
    """
    output, layers = _collect(apply, params, X, 2 * setting.sample_size, groups)
    loss = total_variance_constancy(
        layers,
        positive(betas),
        setting.sample_size,
        sample_axes=setting.sample_axes,
        groups=groups,
    )
    return output, setting.weight * loss


def _collect(
    apply: Callable[..., PyTree], params: PyTree, X: Array, rows: int | None, groups: int = 1
) -> tuple[PyTree, dict[str, Array]]:
    """The output, and the pre-activations by layer, the classifier's left out."""
    output, layers = collect_preactivations(
        apply, params, X, layout=hidden_kernels(), rows=rows, groups=groups
    )
    # Named by layer, not by kernel: the betas are no kernels.
    return output, {path.removesuffix("/kernel"): layer for path, layer in layers.items()}
