"""Batch normalization's training in a plain network, by the library's one call."""

from dataclasses import dataclass
from typing import Any

import jax
import optax
from jaxtyping import Array, PyTree

import jaxnorm
from experiments.methods.normalizer_free import NormalizerFree
from experiments.methods.part import Context, Forward, Optimizer, Output, Part, Prepared


@dataclass(frozen=True)
class MovingAverage(NormalizerFree):
    """`jaxnorm.moving_average_normalization`: its start, its optimizer, and its backward pass."""

    @property
    def rows_per_group(self) -> int:
        """The least number of rows of each group of a batch: fewer have no gradient."""
        return 3

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Returns the raw parameters, fitted to the context's rows, and their optimizer."""
        return self.triple(params, optimizer, context, context.logits)[1:]

    def triple(
        self, params: PyTree, optimizer: Optimizer, context: Context, logits: Any
    ) -> tuple[Any, PyTree, Optimizer]:
        """Returns the call of the library, of a function of plain parameters and rows."""
        heads = () if context.layout is context.kernels else None  # --constrain-head
        return jaxnorm.moving_average_normalization(
            logits, params, optimizer, context.rows, heads=heads
        )

    def forward(
        self, forward: Forward, raw: PyTree, state: PyTree, keys: Array, context: Context
    ) -> Forward:
        """Gives the logits batch normalization's backward pass."""

        def normalized(weights: PyTree, X: Array) -> Output:
            in_loss = self._in_loss(
                lambda weights, X: forward(weights, X).logits, weights, X, context
            )
            return forward(weights, X)._replace(logits=in_loss(_typed_as(raw, weights), X))

        return normalized

    def weights(self, raw: PyTree, state: Any) -> PyTree:
        """Returns the raw parameters, of which the plain weights give no gradient."""
        del state
        return jax.lax.stop_gradient(raw)

    def _in_loss(self, logits: Any, weights: PyTree, X: Array, context: Context) -> Any:
        """Returns the function for the loss, which depends on no values."""
        results: list[Any] = []

        def call(weights: PyTree, X: Array) -> None:
            own = context._replace(rows=X)
            results.append(self.triple(weights, optax.identity(), own, logits)[0])

        jax.eval_shape(call, weights, X)
        return results[0]

    after_update = Part.after_update


def _typed_as(raw: PyTree, weights: PyTree) -> PyTree:
    """Returns raw parameters in the types of the weights, with averages as they are."""

    def typed(x: Any, weight: Array) -> Any:
        if not isinstance(x, jaxnorm.MovingAverages):
            return x.astype(weight.dtype)
        direction, scale = (part.astype(weight.dtype) for part in (x.direction, x.scale))
        return x.replaced(direction=direction, scale=scale)

    is_node = lambda x: isinstance(x, jaxnorm.MovingAverages)  # noqa: E731
    return jax.tree.map(typed, raw, weights, is_leaf=is_node)
