"""Activations of mean square 1, and the Gaussian moments of the error function's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import standardized

#: Gauss-Hermite nodes for smooth activations under N(0, 1).
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)
WEIGHTS = WEIGHTS / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("activation", [jax.nn.silu, jnp.tanh, jax.lax.erf])
def test_without_centering_the_mean_square_is_one(activation: Any) -> None:
    preserving = standardized(activation, centered=False)
    with jax.enable_x64(True):
        values, plain = (np.asarray(f(jnp.asarray(NODES))) for f in (preserving, activation))
    assert (WEIGHTS * values**2).sum() == pytest.approx(1, abs=1e-7)
    np.testing.assert_allclose(values, plain / np.sqrt((WEIGHTS * plain**2).sum()), rtol=1e-7)
