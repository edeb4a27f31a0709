"""The variance constancy loss of the hidden layers' pre-activations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from experiments.methods.constrained import ClippedByLayer
from experiments.methods.part import Context, Forward, Optimizer, Output, Part
from experiments.methods.reparametrized import logits_of, subsample
from jaxnorm import (
    collect_preactivations,
    initial_betas,
    positive_betas,
    total_variance_constancy,
)

#: The parameters' entry for the raw betas, beside the network's own.
BETAS = "betas"


@dataclass(frozen=True)
class VarianceConstancy(Part):
    """The loss, with layers' gradients clipped.

    Attributes:
        sample_size: n, the samples of each of the two subsets.
        vcl_weight: what the loss is multiplied by.
        vcl_clip: the largest norm of a layer's gradient.
        vcl_per_channel: whether a unit of a convolution is a channel; else a channel at a position.
    """

    sample_size: int = 5
    vcl_weight: float = 0.01
    vcl_clip: float = 1.0
    vcl_per_channel: bool = False

    @property
    def sample_axes(self) -> tuple[int, ...] | None:
        """As `jaxnorm.variance_constancy_loss` takes them."""
        return None if self.vcl_per_channel else (0,)

    @property
    def rows_of_a_group(self) -> int:
        """Two samples."""
        return 2 * self.sample_size

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """With one beta for each unit of each hidden layer."""
        rows, logits = subsample(X), logits_of(context)
        _, layers = jax.eval_shape(lambda: _collect(logits, params, rows, context))
        return {**params, BETAS: initial_betas(layers, sample_axes=self.sample_axes)}

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Sees clipped gradients."""
        return ClippedByLayer(self.vcl_clip).optimizer(optimizer, context, seed)

    def weights(self, raw: PyTree, own: PyTree) -> PyTree:
        """The network's own parameters."""
        return {name: entry for name, entry in raw.items() if name != BETAS}

    def forward(
        self, forward: Forward, raw: PyTree, own: PyTree, keys: Array, context: Context
    ) -> Forward:
        """With the weighted loss; the two samples of each group go through the network apart."""
        groups, betas = context.groups, positive_betas(raw[BETAS])

        def with_loss(weights: PyTree, X: Array) -> Output:
            shares = X.reshape(groups, len(X) // groups, *X.shape[1:])
            first, rest = jnp.split(shares, [self.rows_of_a_group], axis=1)
            seen, layers = _collect(forward, weights, _flat(first), context)
            loss = total_variance_constancy(
                layers, betas, self.sample_size, sample_axes=self.sample_axes, groups=groups
            )
            if not rest.size:
                return seen._replace(loss=seen.loss + self.vcl_weight * loss)
            output = forward(weights, _flat(rest))
            parts = (
                y.reshape(groups, len(y) // groups, *y.shape[1:])
                for y in (seen.logits, output.logits)
            )
            logits = _flat(jnp.concatenate([*parts], axis=1))
            return output._replace(logits=logits, loss=output.loss + self.vcl_weight * loss)

        return with_loss


def _flat(shares: Shaped[Array, "groups few *shape"]) -> Shaped[Array, "rows *shape"]:
    """The rows of all groups; where groups are devices' shares, no row changes its device."""
    return shares.reshape(shares.shape[0] * shares.shape[1], *shares.shape[2:])


def _collect(
    apply: Callable[..., Any], params: PyTree, X: Array, context: Context
) -> tuple[Any, dict[str, Array]]:
    """The output, and the pre-activations by layer, the classifier's left out."""
    output, layers = collect_preactivations(apply, params, X, layout=context.hidden)
    # Named by layer, not by kernel: the betas are no kernels.
    return output, {path.removesuffix("/kernel"): layer for path, layer in layers.items()}
