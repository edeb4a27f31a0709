"""The variance constancy loss of the hidden layers' pre-activations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from experiments.methods.part import Context, Forward, Output, Part
from experiments.methods.reparametrized import subsample
from jaxnorm import collect_preactivations, read
from jaxnorm.vcl import initial_betas, positive_betas, total_variance_constancy

#: The parameters' entry for the raw betas, beside the network's own.
BETAS = "betas"


@dataclass(frozen=True)
class VarianceConstancy(Part):
    """The variance constancy loss, of two samples of each group of a batch.

    Attributes:
        sample_size: n, the samples of each of the two subsets.
        vcl_weight: the factor of the loss.
        vcl_per_channel: if True, a convolution's unit is a channel, else a channel at a position.
    """

    sample_size: int = 5
    vcl_weight: float = 0.01
    vcl_per_channel: bool = False

    @property
    def sample_axes(self) -> tuple[int, ...] | None:
        """The ``sample_axes`` of `jaxnorm.variance_constancy_loss`."""
        return None if self.vcl_per_channel else (0,)

    @property
    def rows_per_group(self) -> int:
        """The rows of two samples."""
        return 2 * self.sample_size

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Adds one beta per unit of each hidden layer."""
        rows = subsample(X)
        _, layers = jax.eval_shape(lambda: _collect(context.logits, params, rows, context))
        return {**params, BETAS: initial_betas(layers, sample_axes=self.sample_axes)}

    def weights(self, raw: PyTree, state: PyTree) -> PyTree:
        """Returns the network's parameters without the betas."""
        return {name: entry for name, entry in raw.items() if name != BETAS}

    def forward(
        self, forward: Forward, raw: PyTree, state: PyTree, keys: Array, context: Context
    ) -> Forward:
        """Adds the weighted loss; each group's two samples go through the network separately."""
        groups, betas = context.groups, positive_betas(raw[BETAS])

        def with_loss(weights: PyTree, X: Array) -> Output:
            shares = X.reshape(groups, len(X) // groups, *X.shape[1:])
            samples, others = jnp.split(shares, [self.rows_per_group], axis=1)
            sampled, layers = _collect(forward, weights, _flat(samples), context)
            loss = total_variance_constancy(
                layers, betas, self.sample_size, sample_axes=self.sample_axes, groups=groups
            )
            if not others.size:
                return sampled._replace(loss=sampled.loss + self.vcl_weight * loss)
            output = forward(weights, _flat(others))
            parts = (
                y.reshape(groups, len(y) // groups, *y.shape[1:])
                for y in (sampled.logits, output.logits)
            )
            logits = _flat(jnp.concatenate([*parts], axis=1))
            return output._replace(logits=logits, loss=output.loss + self.vcl_weight * loss)

        return with_loss


def _flat(shares: Shaped[Array, "groups share *shape"]) -> Shaped[Array, "rows *shape"]:
    """Joins the rows of all groups; if groups are devices' shares, no row changes its device."""
    return shares.reshape(shares.shape[0] * shares.shape[1], *shares.shape[2:])


def _collect(
    apply: Callable[..., Any], params: PyTree, X: Array, context: Context
) -> tuple[Any, dict[str, Array]]:
    """Returns the output, and the hidden pre-activations by layer."""
    output, layers = collect_preactivations(read(apply, params, X), layout=context.hidden)
    # Named by layer, because the betas are not kernels.
    return output, {path.removesuffix("/kernel"): layer for path, layer in layers.items()}
