"""Clipping of each layer's gradient, for networks of all libraries."""

from typing import Any

import optax
from jaxtyping import PyTree

from jaxnorm import clip_by_layer_norm


def clip_layers(norm: float) -> optax.GradientTransformation:
    """Makes `jaxnorm.clip_by_layer_norm` for trees whose names may be paths.

    The parameters of a network of Linen, Haiku or Equinox have names such as ``Conv_0/kernel`` in
    one dict, which would be one layer.
    """
    clipping = clip_by_layer_norm(norm)

    def clip(updates: PyTree, params: PyTree | None) -> PyTree:
        del params
        nested = by_layer(updates)
        return as_before(clipping.update(nested, clipping.init(nested))[0], updates)

    return optax.stateless(clip)


def by_layer(tree: Any) -> Any:
    """Returns a tree with a dict for each layer in the place of names that are paths."""
    if not isinstance(tree, dict):
        return tree
    layers: dict[Any, Any] = {}
    for name, value in tree.items():
        layer, slash, last = str(name).rpartition("/")
        if slash:
            layers.setdefault(layer, {})[last] = value
        else:
            layers[name] = by_layer(value)
    return layers


def as_before(nested: Any, tree: Any) -> Any:
    """Returns the leaves of `by_layer` with the names of the tree before it."""
    if not isinstance(tree, dict):
        return nested

    def value(name: Any) -> Any:
        layer, slash, last = str(name).rpartition("/")
        return nested[layer][last] if slash else as_before(nested[name], tree[name])

    return {name: value(name) for name in tree}
