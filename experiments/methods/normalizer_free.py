"""Batch normalization out of a network by the library's one call."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

import jaxnorm
from experiments.methods.part import Apply, Call, Context, Optimizer, Prepared
from experiments.methods.reparametrized import subsample


@dataclass(frozen=True)
class NormalizerFree(Call):
    """`jaxnorm.normalizer_free`: zero sums, a fitted start, quiet branches, centered inputs.

    The means of the inputs move towards those of the minibatch after each update
    (`jaxnorm.refresh_input_means`), slowly, which costs a forward pass.
    """

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Fits the parameters to the context's rows, and wraps the optimizer."""
        heads = () if context.layout is context.kernels else None  # --constrain-head
        return jaxnorm.normalizer_free(context.logits, params, optimizer, context.rows, heads=heads)

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns the fitted parameters."""
        return self.call(params, optax.identity(), context._replace(rows=subsample(X)))[0]

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Returns the optimizer, whose state begins with the means of the context's rows."""
        if context.rows is None:
            return self._for_updates(optimizer, context)
        own = context._replace(rows=subsample(context.rows))
        return self.call(context.functional.params, optimizer, own)[1]

    def _for_updates(self, optimizer: Optimizer, context: Context) -> Optimizer:
        """Returns the optimizer for updates alone, which depend on no value of the rows."""
        # Eight rows: of fewer the library warns.
        rows = jax.ShapeDtypeStruct((8, *context.shape), jnp.float32)
        optimizers: list[Optimizer] = []

        def call(params: PyTree, rows: Array) -> None:
            optimizers.append(self.call(params, optimizer, context._replace(rows=rows))[1])

        jax.eval_shape(call, context.functional.params, rows)
        return optimizers[0]

    def after_update(
        self, optimizer_state: PyTree, apply: Apply, raw: PyTree, X: Array, axis_name: str | None
    ) -> PyTree:
        """Moves the means of the inputs towards those of the minibatch."""
        return jaxnorm.refresh_input_means(
            jaxnorm.read(apply, raw, X), optimizer_state, axis_name=axis_name
        )


@dataclass(frozen=True)
class LeftOut(NormalizerFree):
    """`jaxnorm.normalizer_free` without one of its four ideas.

    Attributes:
        idea: the option of the call that is False: zero_sums, fitted, quiet or centered.
    """

    idea: str = "zero_sums"

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Calls the library with the option."""
        heads = () if context.layout is context.kernels else None  # --constrain-head
        options: dict[str, Any] = {"zero_sums": True, "quiet": True, self.idea: False}
        return jaxnorm.normalizer_free(
            context.logits, params, optimizer, context.rows, heads=heads, **options
        )

    def after_update(
        self, optimizer_state: PyTree, apply: Apply, raw: PyTree, X: Array, axis_name: str | None
    ) -> PyTree:
        """Moves the means of the inputs, unless there are none."""
        if self.idea == "centered":
            return optimizer_state
        return super().after_update(optimizer_state, apply, raw, X, axis_name)
