"""Proposition 1: the distance of a covariance from diagonal, and its bound by the coherence."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, new_figure
from experiments.papers.item import Context, Item, Preset, Report
from experiments.papers.measured import at_most, compared, measured_report, near
from experiments.papers.normprop.jacobian import unit_rows
from jaxnorm.theory.normprop import canonical_error, canonical_error_bound, coherence


class Canonical(NamedTuple):
    """A random matrix's coherence, its error from samples and exactly, and the bound on it.

    Attributes:
        coherence: the coherence of its rows.
        error: the Frobenius norm of the sampled covariance off its diagonal.
        exact: that of the exact covariance.
        bound: the bound of Proposition 1.
    """

    coherence: Float[Array, "..."]
    error: Float[Array, "..."]
    exact: Float[Array, "..."]
    bound: Float[Array, "..."]


class Settings(NamedTuple):
    """Settings of random rows that share one direction more and more."""

    units: int = 32
    inputs: int = 128
    samples: int = 20_000
    shares: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95)
    seeds: int = 8
    sigma: float = 1.0


def canonical_errors(
    key: Array, weights: Float[Array, "units inputs"], sigma: float, samples: int
) -> Canonical:
    """Measures the covariance of u = W x, for uniform x of mean 0 and deviation sigma."""
    half = sigma * 3**0.5
    x = jax.random.uniform(key, (samples, weights.shape[1]), minval=-half, maxval=half)
    u = x @ weights.T
    u = u - u.mean(0, keepdims=True)
    off = u.T @ u / samples * (1 - jnp.eye(len(weights)))
    bound, exact = canonical_error_bound(weights, sigma), canonical_error(weights, sigma)
    return Canonical(coherence(weights), jnp.linalg.norm(off), exact, bound)


def run(settings: Settings, context: Context) -> Report:
    """Compares errors of sampled covariances with their bounds."""

    def one(share: Array, key: Array) -> Canonical:
        rows_key, samples_key = jax.random.split(key)
        weights = unit_rows(rows_key, settings.units, settings.inputs, share)
        return canonical_errors(samples_key, weights, settings.sigma, settings.samples)

    keys, shares = jax.random.split(jax.random.key(0), settings.seeds), jnp.array(settings.shares)
    over_seeds = jax.vmap(one, (None, 0))
    by_share = jax.jit(lambda shares: jax.lax.map(lambda s: over_seeds(s, keys), shares))(shares)
    sampled = jax.tree.map(np.asarray, by_share)  # Each (shares, seeds).
    ratio = sampled.exact / sampled.bound
    simplex = jnp.eye(settings.units) - 1 / settings.units
    over = canonical_error_bound(simplex) / canonical_error(simplex)
    # An entry of a sampled covariance has a standard error of at most sigma^2 sqrt(2 / samples),
    # and the entries of coherent rows are off together.
    noise = settings.sigma**2 * settings.units * (2 / settings.samples) ** 0.5
    distance = np.abs(sampled.error - sampled.exact).max()
    findings = [
        at_most("largest ratio of error and bound", ratio.max(), 1),
        at_most("largest |sampled - exact error|", distance, 4 * noise),
        near("bound over error, all rows at one angle", over, 1, 1e-4),
    ]
    for share, row in zip(settings.shares, ratio, strict=True):
        name = f"mean ratio, share {share:g} of one direction"
        findings.append(compared(name, row.mean(), 1, source="bound"))
    return measured_report(findings, {"bound": _draw(sampled)})


def _draw(sampled: Canonical) -> Figure:
    figure = new_figure()
    axes = figure.axes[0]
    for index, name in enumerate(("error", "bound")):
        values = getattr(sampled, name).ravel()
        axes.plot(
            sampled.coherence.ravel(), values, "o^"[index], label=name, color=COLOURS[index + 1]
        )
    axes.set(xlabel="coherence of the rows", ylabel="Frobenius norm off the diagonal")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


PROVED = "the paper proves it and measures nothing; the rows are ours"

BOUND = Item(
    "normprop/bound",
    "the covariance of pre-activations is nearly diagonal for incoherent rows",
    "its distance from a diagonal is at most the bound of Proposition 1",
    run,
    smoke=Preset(
        Settings(units=8, inputs=32, samples=2000, seeds=2), "5 s on 2 CPU cores", "8 units"
    ),
    cpu=Preset(Settings(), "10 s on 2 CPU cores", PROVED),
    full=Preset(Settings(seeds=64), "1 min on 2 CPU cores", PROVED),
)
