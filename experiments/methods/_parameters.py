"""The initial parameters of a method, and which of them it constrains."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods._recipe import Recipe
from experiments.models import HEAD
from jaxnorm import Layout

#: What fits initial weights to a minibatch, layer by layer.
INITIALIZERS: Mapping[str, Callable[..., PyTree]] = MappingProxyType(
    {
        "variance-preserving": jaxnorm.variance_preserving_init,
        "data-dependent": jaxnorm.data_dependent_init,
    }
)

#: The rows of that minibatch.
INITIAL_ROWS = 256


def constrained_layout(include_head: bool = False) -> Layout:
    """The kernels that methods constrain: all but the classifier's, or with it."""
    return jaxnorm.flax_layout if include_head else jaxnorm.exclude(f"^{HEAD}/")


def initial_parameters(
    params: PyTree, recipe: Recipe, layout: Layout, apply: Callable[..., Array], X: Array
) -> PyTree:
    """A network's own initial parameters, put on the recipe's set and in its raw form.

    Args:
        params: the network's parameters.
        recipe: the method.
        layout: the kernels that it constrains.
        apply: the network in training, ``(plain parameters, X) -> logits``.
        X: training rows, which some methods fit the initial weights to.
    """
    if recipe.squared_radius is not None:
        params = jaxnorm.project(params, layout, recipe.squared_radius, recipe.centered)
    elif recipe.centered:
        params = _center(params, layout)
    if recipe.reparametrization is not None:
        params = jaxnorm.reparametrize(params, recipe.reparametrization, layout)
    if recipe.initializer is None:
        return params
    return INITIALIZERS[recipe.initializer](apply, params, spread(X))


def spread(X: Float[Array, "rows *shape"]) -> Float[Array, "few *shape"]:
    """Up to `INITIAL_ROWS` rows from all over ``X``, whatever its order."""
    return X[:: max(1, len(X) // INITIAL_ROWS)][:INITIAL_ROWS]


def _center(params: PyTree, layout: Layout) -> PyTree:
    """Zero-mean kernels; what is centred is a gradient or a kernel alike."""
    centring = jaxnorm.centered_gradient(layout)
    centred, _ = centring.update(params, centring.init(params))
    return centred
