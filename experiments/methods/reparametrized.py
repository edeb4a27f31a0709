"""What stands in the place of each constrained kernel, and what its weights start from."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Array, PyTree, Shaped

import jaxnorm
from experiments.methods.part import Context, Part

#: The rows of the minibatch that initial weights are fitted to.
INITIAL_ROWS = 256


@dataclass(frozen=True)
class Reparametrized(Part):
    """A node in the place of each constrained kernel.

    Attributes:
        node: its type.
    """

    node: type[jaxnorm.Reparametrization]

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """With the nodes."""
        return jaxnorm.reparametrize(params, self.node, context.layout)


@dataclass(frozen=True)
class SpectralNorm(Reparametrized):
    """Kernels over their largest singular value; carries its vectors from step to step."""

    node: type[jaxnorm.Reparametrization] = jaxnorm.SpectrallyNormalized

    def state(self, raw: PyTree) -> PyTree:
        """The singular vectors."""
        return jaxnorm.power_iteration(raw)

    def weights(self, raw: PyTree, own: PyTree) -> PyTree:
        """With the vectors in their places."""
        return jaxnorm.attach_singular_vectors(raw, own)

    def after_step(self, raw: PyTree, own: PyTree) -> PyTree:
        """One power iteration."""
        return jaxnorm.power_iteration(raw, own)


@dataclass(frozen=True)
class Initialized(Part):
    """Initial weights that are fitted to a minibatch, layer by layer.

    Attributes:
        by: an initializer of the library that does so.
    """

    by: Callable[..., PyTree]

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Fitted ones."""
        return self.by(logits_of(context), params, subsample(X), layout=context.kernels)


def logits_of(context: Context, train: bool = True) -> Callable[[PyTree, Array], Array]:
    """The network, in training or not, as a function of its plain parameters and rows."""
    functional = context.functional

    def logits(params: PyTree, X: Array) -> Array:
        return functional.apply(params, functional.state, X, train=train)[0]

    return logits


def subsample(
    X: Shaped[Array, "rows *shape"], count: int = INITIAL_ROWS
) -> Shaped[Array, "few *shape"]:
    """Up to ``count`` rows from all over ``X``, whatever its order."""
    return X[:: max(1, len(X) // count)][:count]
