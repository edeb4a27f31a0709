"""Strengths are constants for differentiation, whatever they are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.losses import gamma_decay_strength

M = 50.0


@pytest.mark.parametrize("what", ["loss", "batch_size", "excess_kurtosis"])
def test_no_gradient_goes_through_a_strength(what: str) -> None:
    """Not through the Hessian either, and not through the settings: decay is no loss of them."""
    u = jnp.asarray(np.random.default_rng(10).normal(size=(16, 2)), jnp.float32)

    def total(p: jax.Array) -> jax.Array:
        curvature = p if what == "loss" else jnp.float32(1)
        settings = {"batch_size": jnp.float32(M), "excess_kurtosis": jnp.float32(0)}
        if what != "loss":
            settings[what] = p
        return gamma_decay_strength(
            lambda shift: (curvature * jnp.cosh(u + shift)).sum(1).mean(),
            u,
            key=jax.random.key(0),
            **settings,
        ).sum()

    value, other, slope = jax.jit(lambda p: (total(p), total(2 * p), jax.grad(total)(p)))(3.0)
    assert abs(value / other - 1) > 0.1
    assert slope == 0
