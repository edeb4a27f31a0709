"""What a method takes from a large sample now and then: population statistics, decay strengths."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from experiments.methods._hidden import hidden_kernels
from experiments.methods._paths import by_path, replaced
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
        draws: the parts of those rows; each has random signs of its own in a probe.
        probes: the Hutchinson probes.
        batch_size: the batch of the batch normalization that is imitated; None for the training's.
        excess_kurtosis: of the pre-activations, 0 for a Gaussian.
        nonnegative: whether negative strengths are left out.
    """

    rows: int = 256
    draws: int = 16
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
    means, stddevs, positions = _statistics(apply, params, model_state, batch[0])

    def loss(scales: Sites, biases: Sites, part: tuple[Array, Array]) -> Float[Array, ""]:
        values = {f"{site}/scale": value for site, value in scales.items()}
        values |= {bias_of(site): value for site, value in biases.items()}
        X, y = part
        logits, _ = apply(effective(replaced(params, values)), model_state, X)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    rows = setting.batch_size or batch_size
    return affine_gamma_decay_strength(
        loss,
        scales,
        biases,
        _in_parts(batch, setting.draws),
        {site: rows * each for site, each in positions.items()},
        key=key,
        means=means,
        stddevs=stddevs,
        probes=setting.probes,
        excess_kurtosis=setting.excess_kurtosis,
        nonnegative=setting.nonnegative,
    )


def _statistics(
    apply: Apply, params: PyTree, model_state: PyTree, X: Array
) -> tuple[Sites, Sites, Sites]:
    """What each scale multiplies: its mean, its standard deviation, its positions a sample."""
    scales, biases = scales_and_biases(params)
    kept = by_path(model_state)
    if all(f"{site}/positions" in kept for site in scales):  # Normalized by the population.
        positions = {site: kept[f"{site}/positions"] for site in scales}
        return jax.tree.map(jnp.zeros_like, scales), jax.tree.map(jnp.ones_like, scales), positions
    _, layers = collect_preactivations(
        lambda params, X: apply(params, model_state, X), params, X, layout=hidden_kernels()
    )
    means, stddevs, positions = {}, {}, {}
    for site, scale in scales.items():
        mean, variance, _ = batch_moments(layers[site], range(layers[site].ndim - 1))
        # A unit of scale 0 says nothing of its input; its strength does not matter either.
        safe = jnp.where(scale == 0, 1, scale)
        means[site] = (mean - biases[site]) / safe
        stddevs[site] = jnp.sqrt(variance) / jnp.abs(safe)
        positions[site] = independent_positions(layers[site])
    return means, stddevs, positions


def _in_parts(batch: PyTree, count: int) -> PyTree:
    """The rows as (parts, rows of a part, ...); what is left over is left out."""
    count = min(count, len(jax.tree.leaves(batch)[0]))

    def split(rows: Array) -> Array:
        size = len(rows) // count
        return rows[: count * size].reshape(count, size, *rows.shape[1:])

    return jax.tree.map(split, batch)
