"""Proposition 1: the distance of a covariance from diagonal, and its bound by the coherence."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, new_figure
from experiments.papers.item import Context, Item, Preset, Report
from experiments.papers.measured import Measured, at_most, measured_report, near
from experiments.papers.normprop.jacobian import unit_rows
from jaxnorm.theory.normprop import canonical_error, canonical_error_bound, coherence


class Canonical(NamedTuple):
    """A random matrix's coherence, its error from samples, and the bound on it.

    Attributes:
        coherence: the coherence of its rows.
        error: the Frobenius norm of the sampled covariance off its diagonal.
        bound: the bound of Proposition 1.
    """

    coherence: Float[Array, "..."]
    error: Float[Array, "..."]
    bound: Float[Array, "..."]


def canonical_errors(
    key: Array, weights: Float[Array, "units inputs"], sigma: float, samples: int
) -> Canonical:
    """Measures the covariance of u = W x, for uniform x of mean 0 and deviation sigma."""
    half = sigma * 3**0.5
    x = jax.random.uniform(key, (samples, weights.shape[1]), minval=-half, maxval=half)
    u = x @ weights.T
    u = u - u.mean(0, keepdims=True)
    covariance = u.T @ u / samples
    off = covariance * (1 - jnp.eye(len(weights)))
    bound = canonical_error_bound(weights, sigma)
    return Canonical(coherence(weights), jnp.linalg.norm(off), bound)


class Settings(NamedTuple):
    """Settings of random rows that share one direction more and more."""

    units: int = 32
    inputs: int = 128
    samples: int = 20_000
    shares: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95)
    seeds: int = 8
    sigma: float = 1.0


def run(settings: Settings, context: Context) -> Report:
    """Compares errors of sampled covariances with their bounds."""
    sampled, exact = jax.tree.map(np.asarray, _measure(settings))
    context.advance(1.0, "sampled")
    ratio = exact / sampled.bound
    simplex = jnp.eye(settings.units) - 1 / settings.units
    over = canonical_error_bound(simplex) / canonical_error(simplex)
    # An entry of a sampled covariance has a standard error of at most sigma^2 sqrt(2 / samples),
    # and the entries of coherent rows are off together.
    noise = settings.sigma**2 * settings.units * (2 / settings.samples) ** 0.5
    measured = [
        at_most("largest ratio of error and bound", ratio.max(), 1),
        at_most("largest |sampled - exact error|", np.abs(sampled.error - exact).max(), 4 * noise),
        near("bound over error, all rows at one angle", over, 1, 1e-4),
        *(
            Measured(
                f"mean ratio, share {share:g} of one direction",
                float(values.mean()),
                1,
                None,
                "bound",
            )
            for share, values in zip(settings.shares, ratio, strict=True)
        ),
    ]
    return measured_report(measured, {"bound": _draw(sampled)})


def _measure(settings: Settings) -> tuple[Canonical, Array]:
    """Measures errors by share and seed, sampled and exact."""

    def one(share: Array, key: Array) -> tuple[Canonical, Array]:
        rows_key, samples_key = jax.random.split(key)
        weights = unit_rows(rows_key, settings.units, settings.inputs, share)
        sampled = canonical_errors(samples_key, weights, settings.sigma, settings.samples)
        return sampled, canonical_error(weights, settings.sigma)

    keys = jax.random.split(jax.random.key(0), settings.seeds)
    over_seeds = jax.vmap(one, (None, 0))
    return jax.jit(lambda s: jax.lax.map(lambda x: over_seeds(x, keys), s))(
        jnp.array(settings.shares)
    )


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
    {
        "smoke": Preset(
            Settings(units=8, inputs=32, samples=2000, seeds=2), "5 s on 2 CPU cores", "8 units"
        ),
        "cpu": Preset(Settings(), "10 s on 2 CPU cores", PROVED),
        "full": Preset(Settings(seeds=64), "1 min on 2 CPU cores", PROVED),
    },
)
