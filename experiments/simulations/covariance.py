"""Covariances of pre-activations and Jacobians of standardized layers, from samples."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import standardized
from jaxnorm.theory.normprop import canonical_error_bound, coherence


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


def unit_rows(
    key: Array, units: int, inputs: int, common: float | Float[Array, ""]
) -> Float[Array, "units inputs"]:
    """Draws unit-norm rows; ``common``, from 0 to 1, is their share of one direction."""
    row_key, direction_key = jax.random.split(key)
    rows = _unit(jax.random.normal(row_key, (units, inputs)))
    direction = _unit(jax.random.normal(direction_key, (1, inputs)))
    return _unit(jnp.sqrt(1 - common) * rows + jnp.sqrt(common) * direction)


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


def jacobian_grams(
    key: Array,
    weights: Float[Array, "units inputs"],
    activation: Callable[[Array], Array],
    samples: int,
) -> Float[Array, "units units"]:
    """Averages J J' of the standardized layer over standard normal inputs."""
    layer = standardized(activation)

    def gram(key: Array) -> Float[Array, "units units"]:
        x = jax.random.normal(key, (weights.shape[1],))
        jacobian = jax.jacobian(lambda x: layer(weights @ x))(x)
        return jacobian @ jacobian.T

    return jax.lax.map(gram, jax.random.split(key, samples), batch_size=1000).mean(0)


def _unit(rows: Float[Array, "rows inputs"]) -> Float[Array, "rows inputs"]:
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
