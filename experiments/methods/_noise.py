"""Noise on the scales, drawn for each sample, where it goes through the kernels' products."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from experiments.methods._hidden import hidden_kernels
from experiments.methods._recipe import Recipe
from jaxnorm import linear_stddev, with_scale_noise
from jaxnorm.nnx import Functional


def stddev_of_kernels(recipe: Recipe, functional: Functional, shape: Sequence[int]) -> PyTree:
    """The noise of a network's kernels: a number, a tree of numbers, or None for none.

    Args:
        recipe: the method.
        functional: the network, or its structure.
        shape: of one input.
    """
    if recipe.noise is None or recipe.scale_layers or recipe.noisy_parameters:
        return None
    if not recipe.noise_grows:
        return recipe.noise

    def logits(params: PyTree, x: Array) -> Array:
        return functional.apply(params, functional.state, x, train=False)[0]

    x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    return linear_stddev(recipe.noise, logits, functional.params, x, layout=hidden_kernels())


def noisy(
    forward: Callable[..., PyTree], stddev: PyTree, keys: Key[Array, " rows"] | None
) -> Callable[..., PyTree]:
    """``forward(weights, X)`` with noise on its hidden kernels' products.

    Args:
        forward: of plain weights and rows.
        stddev: as `stddev_of_kernels` gives it.
        keys: one for each row.
    """
    if stddev is None:
        return forward
    return partial(with_scale_noise(forward, stddev, layout=hidden_kernels()), keys)
