"""The initial parameters of a method, and which of them it constrains."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

import jaxnorm
from experiments.methods._recipe import Recipe
from experiments.methods._variance_constancy import with_betas
from experiments.models import Activation
from jaxnorm import Layout
from jaxnorm.activations import jacobian_factor

#: What fits initial weights to a minibatch, layer by layer.
INITIALIZERS: Mapping[str, Callable[..., PyTree]] = MappingProxyType(
    {
        "variance-preserving": jaxnorm.variance_preserving_init,
        "data-dependent": jaxnorm.data_dependent_init,
    }
)

#: The rows of that minibatch.
INITIAL_ROWS = 256


def initial_parameters(
    params: PyTree,
    recipe: Recipe,
    layout: Layout,
    apply: Callable[..., Array],
    X: Array,
    activation: Activation | None = None,
) -> PyTree:
    """A network's own initial parameters, put on the recipe's set and in its raw form.

    Args:
        params: the network's parameters.
        recipe: the method.
        layout: the kernels that it constrains.
        apply: the network in training, ``(plain parameters, X) -> logits``.
        X: training rows, which some methods fit the initial weights to.
        activation: the network's, before it is standardized.
    """
    if recipe.squared_radius is not None:
        params = jaxnorm.project(
            params,
            layout=layout,
            squared_radius=recipe.squared_radius,
            centered=recipe.centered,
        )
    elif recipe.centered:
        params = _center(params, layout)
    if recipe.reparametrization is not None:
        params = jaxnorm.reparametrize(params, recipe.reparametrization, layout)
    if recipe.propagates:
        params = _scaled(params, 1 / jacobian_factor(activation))
    if recipe.initializer is not None:
        params = INITIALIZERS[recipe.initializer](apply, params, spread(X))
    if recipe.variance_constancy is not None:
        params = with_betas(params, recipe.variance_constancy, apply, spread(X))
    return params


def spread(
    X: Shaped[Array, "rows *shape"], count: int = INITIAL_ROWS
) -> Shaped[Array, "few *shape"]:
    """Up to ``count`` rows from all over ``X``, whatever its order."""
    return X[:: max(1, len(X) // count)][:count]


def _scaled(params: PyTree, factor: float) -> PyTree:
    """The parameters with the scale of every reparametrized kernel multiplied."""

    def scale(entry: PyTree) -> PyTree:
        return entry.rescaled(jnp.float32(factor)) if _is_node(entry) else entry

    return jax.tree.map(scale, params, is_leaf=_is_node)


def _is_node(entry: PyTree) -> bool:
    return isinstance(entry, jaxnorm.Reparametrization)


def _center(params: PyTree, layout: Layout) -> PyTree:
    """Zero-mean kernels; what is centred is a gradient or a kernel alike."""
    centring = jaxnorm.centered_gradient(layout)
    centred, _ = centring.update(params, centring.init(params))
    return centred
