"""What a method takes from a large sample now and then: population statistics, decay strengths."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from experiments.methods._hidden import hidden_kernels
from experiments.models import HEAD
from jaxnorm import (
    affine_gamma_decay_strength,
    batch_moments,
    collect_preactivations,
    effective,
    independent_positions,
)

#: ``(params, model_state, X) -> (logits, model_state)``.
Apply = Callable[[PyTree, PyTree, Array], tuple[Array, PyTree]]

#: One array for each site, by the path of its normalizer or linear map.
Sites = dict[str, Float[Array, " units"]]


class Population(NamedTuple):
    """When statistics are taken anew, and of how much.

    Attributes:
        every: the steps from one time to the next; each epoch begins with one.
        rows: the training rows that they are taken of, or all if there are fewer.
    """

    every: int = 10
    rows: int = 10_000


class GammaDecay(NamedTuple):
    """How the strength of gamma decay is estimated, each time that the population is seen.

    Attributes:
        rows: the training rows of the curvature.
        probes: the Hutchinson probes.
        batch_size: the batch of the batch normalization that is imitated; None for the training's.
        excess_kurtosis: of the pre-activations, 0 for a Gaussian.
        nonnegative: whether negative strengths are left out.
    """

    rows: int = 256
    probes: int = 1
    batch_size: int | None = None
    excess_kurtosis: float = 0.0
    nonnegative: bool = True


def scales_and_biases(params: PyTree) -> tuple[Sites, Sites]:
    """The scales of normalizers or of reparametrized kernels, and the biases beside them."""
    leaves = by_path(params)
    scales = {
        path.removesuffix("/scale"): leaf
        for path, leaf in leaves.items()
        if path.endswith("/scale") and HEAD not in path.split("/")
    }
    biases = {path: leaves[bias_of(path)] for path in scales}
    return scales, biases


def bias_of(site: str) -> str:
    """The path of the bias beside a scale."""
    return f"{site.removesuffix('/kernel')}/bias"


def decay_strengths(
    apply: Apply,
    params: PyTree,
    model_state: PyTree,
    batch: tuple[Float[Array, "rows *shape"], Int[Array, " rows"]],
    setting: GammaDecay,
    batch_size: int,
    key: Key[Array, ""],
) -> Sites:
    """The strength of gamma decay of each unit of each site.

    Args:
        apply: the network in evaluation mode: samples do not see each other.
        params: raw parameters.
        model_state: with the population's statistics.
        batch: the rows that the curvature is taken of.
        setting: how.
        batch_size: of training.
        key: of the probes.
    """
    scales, biases = scales_and_biases(params)
    means, stddevs, positions = _statistics(apply, params, model_state, batch[0], scales)

    def loss(scales: Sites, biases: Sites, sample: tuple[Array, Array]) -> Float[Array, ""]:
        values = {f"{site}/scale": value for site, value in scales.items()}
        values |= {bias_of(site): value for site, value in biases.items()}
        x, y = sample
        logits, _ = apply(effective(replaced(params, values)), model_state, x[None])
        return optax.softmax_cross_entropy_with_integer_labels(logits[0], y)

    rows = setting.batch_size or batch_size
    return affine_gamma_decay_strength(
        loss,
        scales,
        biases,
        batch,
        {site: rows * each for site, each in positions.items()},
        key=key,
        means=means,
        stddevs=stddevs,
        probes=setting.probes,
        excess_kurtosis=setting.excess_kurtosis,
        nonnegative=setting.nonnegative,
    )


def _statistics(
    apply: Apply, params: PyTree, model_state: PyTree, X: Array, scales: Sites
) -> tuple[Sites, Sites, Sites]:
    """What each scale multiplies: its mean, its standard deviation, its positions a sample."""
    kept = by_path(model_state)
    if all(f"{site}/positions" in kept for site in scales):  # Normalized by the population.
        zeros, ones = ({site: f(leaf) for site, leaf in scales.items()} for f in _LIKE)
        return zeros, ones, {site: kept[f"{site}/positions"] for site in scales}
    _, layers = collect_preactivations(
        lambda params, X: apply(params, model_state, X), params, X, layout=hidden_kernels()
    )
    moments = {site: batch_moments(layers[site], range(layers[site].ndim - 1)) for site in scales}
    # A unit of scale 0 says nothing of its input; its strength does not matter either.
    safe = {site: jnp.where(scale == 0, 1, scale) for site, scale in scales.items()}
    return (
        {site: moments[site].mean / safe[site] for site in scales},
        {site: jnp.sqrt(moments[site].variance) / jnp.abs(safe[site]) for site in scales},
        {site: independent_positions(layers[site]) for site in scales},
    )


_LIKE = (jnp.zeros_like, jnp.ones_like)


def by_path(tree: PyTree) -> dict[str, Array]:
    """The leaves by their /-joined paths."""
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def replaced(tree: PyTree, values: dict[str, Array]) -> PyTree:
    """The tree with the leaves at some paths replaced."""

    def value(path: tuple[jax.tree_util.KeyEntry, ...], leaf: Array) -> Array:
        return values.get(jax.tree_util.keystr(path, simple=True, separator="/"), leaf)

    return jax.tree.map_with_path(value, tree)
