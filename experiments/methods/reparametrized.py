"""Reparametrizations of constrained kernels, and initial weights fitted to data."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Array, PyTree, Shaped

import jaxnorm
from experiments.methods.first_layer import Layers, layout_of
from experiments.methods.part import Context, Part

#: The number of rows that initial weights are fitted to.
INITIAL_ROWS = 256


@dataclass(frozen=True)
class Reparametrized(Part):
    """`jaxnorm.reparametrize`: a node in the place of each constrained kernel.

    Attributes:
        node: the type of the node.
        layers: the layers whose kernels are replaced.
    """

    node: type[jaxnorm.Reparametrization]
    layers: Layers = "all"

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Replaces the kernels by nodes."""
        return jaxnorm.reparametrize(params, self.node, layout_of(self.layers, context))


@dataclass(frozen=True)
class SpectralNorm(Reparametrized):
    """Kernels over their largest singular value, whose vectors are carried from step to step."""

    node: type[jaxnorm.Reparametrization] = jaxnorm.SpectrallyNormalized

    def state(self, raw: PyTree) -> PyTree:
        """Returns the singular vectors."""
        return jaxnorm.spectral.power_iteration(raw)

    def weights(self, raw: PyTree, state: PyTree) -> PyTree:
        """Attaches the vectors to the nodes."""
        return jaxnorm.spectral.attach_singular_vectors(raw, state)

    def after_step(self, raw: PyTree, state: PyTree) -> PyTree:
        """Runs one power iteration."""
        return jaxnorm.spectral.power_iteration(raw, state)


@dataclass(frozen=True)
class Initialized(Part):
    """Fits initial weights to a minibatch, layer by layer.

    Attributes:
        by: the initializer, a function of the library.
    """

    by: Callable[..., PyTree]

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns the fitted weights."""
        return self.by(jaxnorm.read(context.logits, params, subsample(X)), layout=context.kernels)


def subsample(
    X: Shaped[Array, "rows *shape"], count: int = INITIAL_ROWS
) -> Shaped[Array, "count *shape"]:
    """Returns up to ``count`` rows, evenly spaced in ``X``."""
    return X[:: max(1, len(X) // count)][:count]
