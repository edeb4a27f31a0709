"""Reparametrizations of constrained kernels, and initial weights fitted to data."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Array, PyTree, Shaped

import jaxnorm
from experiments.methods.part import Context, Part

#: The number of rows that initial weights are fitted to.
INITIAL_ROWS = 256


@dataclass(frozen=True)
class Reparametrized(Part):
    """Replaces each constrained kernel by a node.

    Attributes:
        node: the type of the node.
    """

    node: type[jaxnorm.Reparametrization]

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Replaces the kernels by nodes."""
        return jaxnorm.reparametrize(params, self.node, context.layout)


@dataclass(frozen=True)
class SpectralNorm(Reparametrized):
    """Kernels over their largest singular value, whose vectors are carried from step to step."""

    node: type[jaxnorm.Reparametrization] = jaxnorm.SpectrallyNormalized

    def state(self, raw: PyTree) -> PyTree:
        """Returns the singular vectors."""
        return jaxnorm.power_iteration(raw)

    def weights(self, raw: PyTree, state: PyTree) -> PyTree:
        """Attaches the vectors to the nodes."""
        return jaxnorm.attach_singular_vectors(raw, state)

    def after_step(self, raw: PyTree, state: PyTree) -> PyTree:
        """Runs one power iteration."""
        return jaxnorm.power_iteration(raw, state)


@dataclass(frozen=True)
class Initialized(Part):
    """Fits initial weights to a minibatch, layer by layer.

    Attributes:
        by: the initializer, a function of the library.
    """

    by: Callable[..., PyTree]

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns the fitted weights."""
        return self.by(logits_of(context), params, subsample(X), layout=context.kernels)


def logits_of(context: Context, train: bool = True) -> Callable[[PyTree, Array], Array]:
    """Returns the network, in training or not, as a function of its plain parameters and rows."""
    functional = context.functional

    def logits(params: PyTree, X: Array) -> Array:
        return functional.apply(params, functional.state, X, train=train)[0]

    return logits


def subsample(
    X: Shaped[Array, "rows *shape"], count: int = INITIAL_ROWS
) -> Shaped[Array, "count *shape"]:
    """Returns up to ``count`` rows, evenly spaced in ``X``."""
    return X[:: max(1, len(X) // count)][:count]
