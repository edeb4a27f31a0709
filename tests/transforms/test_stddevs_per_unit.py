"""An array of standard deviations: one a unit of its layer, each of them looked at."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import Scaled, noise_injection, perturb_scales

PARAMS = {"kernel": Scaled.from_kernel(jnp.ones((3, 4)), -2)}


def test_each_unit_has_its_own() -> None:
    key = jax.random.key(0)
    one = perturb_scales(PARAMS, 1.0, key)["kernel"].scale - 1
    stddev = jnp.array([0.0, 0.5, 1.0, 2.0])
    got = perturb_scales(PARAMS, stddev, key)["kernel"].scale - 1
    np.testing.assert_allclose(got, stddev * one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (5,), (1, 4)])
def test_those_of_other_units_are_refused(shape: tuple[int, ...]) -> None:
    """Broadcast, a layer of one unit would become as many as there are deviations."""
    tx = noise_injection(optax.sgd(0.1), jnp.full(shape, 0.1), seed=0)
    with pytest.raises(ValueError, match=r"the stddev of 'kernel/scale' has .*; wanted \(4,\)"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS)


@pytest.mark.parametrize("worst", [-0.5, float("nan")])
def test_what_no_deviation_can_be_is_refused(worst: float) -> None:
    for stddev in (worst, {"kernel": worst}, jnp.full(4, 0.1).at[3].set(worst)):
        with pytest.raises(ValueError, match=rf"stddev is {worst}.*wanted a number of at least 0"):
            noise_injection(optax.sgd(0.1), stddev, seed=0).init(PARAMS)
