"""Batch normalization taken apart: population statistics, and the decay of scales that it implies.

Both parts use a large sample of the training rows at intervals, not at each step.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, PyTree

from experiments.methods.part import Context, Forward, Output, Part, Sample
from experiments.methods.paths import by_path, replaced
from experiments.methods.reparametrized import subsample
from experiments.models.registry import HEAD, NetworkStyle
from jaxnorm import batch_moments, collect_preactivations, read
from jaxnorm.batch_norm import affine_gamma_decay_strength, gamma_decay, independent_positions
from jaxnorm.nnx import functionalize

#: One array per site, by the path of its normalizer or linear map.
Sites = dict[str, Float[Array, " units"]]


@dataclass(frozen=True)
class PopulationNorm(Part):
    """Normalization by the statistics of a large sample.

    Attributes:
        refresh_every: the steps between two refreshes; each epoch also ends with one.
        population_rows: the number of training rows in the sample, or all if there are fewer.
    """

    refresh_every: int = 10
    population_rows: int = 10_000

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Uses layers that keep the population's statistics."""
        return style._replace(norm="pn")

    def refresh(self, state: PyTree, sample: Sample, context: Context) -> tuple[PyTree, PyTree]:
        """Updates the statistics in the layers."""
        return self.settle(sample, context), state

    def settle(self, sample: Sample, context: Context) -> PyTree:
        """Returns the model state with the statistics of the sample."""
        apply = functionalize(nnx.view(context.model, refresh=True)).apply
        rows = sample.shard(subsample(sample.X, self.population_rows))
        return apply(sample.weights(sample.raw), sample.model_state, rows, train=False)[1]


@dataclass(frozen=True)
class GammaDecay(Part):
    """The decay of scales that batch normalization implies, as an explicit loss.

    Attributes:
        refresh_every: the steps between two estimates of its strength.
        rows: the number of training rows for the curvature.
        draws: the number of parts of those rows, each with its own random signs in a probe.
        probes: the number of Hutchinson probes.
        excess_kurtosis: the excess kurtosis of the pre-activations, 0 for a Gaussian.
        nonnegative: if True, negative strengths become 0.
        decay_times: a factor of the strength that theory predicts.
    """

    refresh_every: int = 10
    rows: int = 256
    draws: int = 16
    probes: int = 1
    excess_kurtosis: float = 0.0
    nonnegative: bool = True
    decay_times: float = 1.0

    def state(self, raw: PyTree) -> PyTree:
        """Returns the strengths, one per scale; zero before the first estimate."""
        return jax.tree.map(jnp.zeros_like, scales_and_biases(raw)[0])

    def forward(
        self, forward: Forward, raw: PyTree, state: PyTree, keys: Array, context: Context
    ) -> Forward:
        """Adds the decay to the loss."""
        decay = self.decay_times * gamma_decay(scales_and_biases(raw)[0], state)

        def with_decay(weights: PyTree, X: Array) -> Output:
            output = forward(weights, X)
            return output._replace(loss=output.loss + decay)

        return with_decay

    def refresh(self, state: PyTree, sample: Sample, context: Context) -> tuple[PyTree, PyTree]:
        """Estimates the strengths anew."""
        batch = sample.shard((subsample(sample.X, self.rows), subsample(sample.y, self.rows)))
        return sample.model_state, self.strengths(batch, sample, context)

    def strengths(self, batch: tuple[Array, Array], sample: Sample, context: Context) -> Sites:
        """Estimates the strength of gamma decay per unit of each site, from ``batch``."""
        scales, biases = scales_and_biases(sample.raw)
        means, stddevs, positions = _statistics(batch[0], sample, context)

        def loss(scales: Sites, biases: Sites, part: tuple[Array, Array]) -> Float[Array, ""]:
            values = {f"{site}/scale": value for site, value in scales.items()}
            values |= {bias_of(site): value for site, value in biases.items()}
            X, y = part
            weights = sample.weights(replaced(sample.raw, values))
            logits = _logits(weights, X, sample, context)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        return affine_gamma_decay_strength(
            loss,
            scales,
            biases,
            _in_parts(batch, self.draws),
            {site: context.batch_size * each for site, each in positions.items()},
            key=sample.key,
            means=means,
            stddevs=stddevs,
            probes=self.probes,
            excess_kurtosis=self.excess_kurtosis,
            nonnegative=self.nonnegative,
        )


def scales_and_biases(params: PyTree) -> tuple[Sites, Sites]:
    """Returns the scales of normalizers or reparametrized kernels, and their biases."""
    leaves = by_path(params)
    scales = {
        path.removesuffix("/scale"): leaf
        for path, leaf in leaves.items()
        if path.endswith("/scale") and HEAD not in path.split("/")
    }
    biases = {path: leaves[bias_of(path)] for path in scales}
    return scales, biases


def bias_of(site: str) -> str:
    """Returns the path of the bias beside a scale."""
    return f"{site.removesuffix('/kernel')}/bias"


def _logits(weights: PyTree, X: Array, sample: Sample, context: Context) -> Array:
    """Applies the network in evaluation mode, in which samples are independent."""
    return context.functional.apply(weights, sample.model_state, X, train=False)[0]


def _statistics(X: Array, sample: Sample, context: Context) -> tuple[Sites, Sites, Sites]:
    """Returns the mean, the deviation and the positions per sample of each scale's input."""
    scales, biases = scales_and_biases(sample.raw)
    variables = by_path(sample.model_state)
    if all(f"{site}/positions" in variables for site in scales):  # Population normalization.
        positions = {site: variables[f"{site}/positions"] for site in scales}
        return jax.tree.map(jnp.zeros_like, scales), jax.tree.map(jnp.ones_like, scales), positions
    _, layers = collect_preactivations(
        read(
            lambda weights, X: _logits(weights, X, sample, context), sample.weights(sample.raw), X
        ),
        layout=context.hidden,
    )
    means, stddevs, positions = {}, {}, {}
    for site, scale in scales.items():
        mean, variance, _ = batch_moments(layers[site], range(layers[site].ndim - 1))
        # The input of a unit with scale 0 is unknown, and its strength does not matter.
        safe = jnp.where(scale == 0, 1, scale)
        means[site] = (mean - biases[site]) / safe
        stddevs[site] = jnp.sqrt(variance) / jnp.abs(safe)
        positions[site] = independent_positions(layers[site])
    return means, stddevs, positions


def _in_parts(batch: PyTree, count: int) -> PyTree:
    """Splits the rows into (parts, rows of a part, ...); remaining rows are left out."""
    count = min(count, len(jax.tree.leaves(batch)[0]))

    def split(rows: Array) -> Array:
        size = len(rows) // count
        return rows[: count * size].reshape(count, size, *rows.shape[1:])

    return jax.tree.map(split, batch)
