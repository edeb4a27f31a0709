"""The initial parameters of a method, and which of them it constrains."""

import jax
from jaxtyping import PyTree

import jaxnorm
from experiments.methods._recipe import Recipe
from experiments.models import HEAD
from jaxnorm import Layout


def constrained_layout(include_head: bool = False) -> Layout:
    """The kernels that methods constrain: all but the classifier's, or with it."""
    return jaxnorm.flax_layout if include_head else _without_head


def _without_head(params: PyTree) -> PyTree:
    axes = jaxnorm.flax_layout(params)
    is_leaf = lambda x: x is None or isinstance(x, tuple)  # noqa: E731
    return {**axes, HEAD: jax.tree.map(lambda _: None, axes[HEAD], is_leaf=is_leaf)}


def initial_parameters(params: PyTree, recipe: Recipe, layout: Layout) -> PyTree:
    """A network's own initial parameters, put on the recipe's set and in its raw form."""
    if recipe.squared_radius is not None:
        params = jaxnorm.project(params, layout, recipe.squared_radius, recipe.centered)
    elif recipe.centered:
        params = _center(params, layout)
    if recipe.reparametrization is None:
        return params
    return jaxnorm.reparametrize(params, recipe.reparametrization, layout)


def _center(params: PyTree, layout: Layout) -> PyTree:
    """Zero-mean kernels; what is centred is a gradient or a kernel alike."""
    centred, _ = jaxnorm.centered_gradient(layout).update(params, None)
    return centred
