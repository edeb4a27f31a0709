"""Units whose pre-activations do not vary, but for rounding, keep their weights."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import data_dependent_init, variance_preserving_init

KERNEL = jnp.asarray(np.random.default_rng(0).normal(size=(7, 5)), jnp.float32)


def dense(params, x):
    return x @ params["kernel"]


@pytest.mark.parametrize("value", [0.0, 0.1, 1e3])
def test_one_row_repeated(value: float) -> None:
    row = value * (1 + jnp.arange(7, dtype=jnp.float32) / 3)
    fitted = data_dependent_init(dense, {"kernel": KERNEL}, jnp.tile(row, (100, 1)))
    np.testing.assert_array_equal(fitted["kernel"], KERNEL)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e3])
def test_equal_pre_activations(value: float) -> None:
    params = {"kernel": jnp.full((7, 5), 0.3)}
    fitted = variance_preserving_init(dense, params, jnp.full((100, 7), value))
    np.testing.assert_array_equal(fitted["kernel"], params["kernel"])


def test_flags_are_not_traced() -> None:
    def apply(params, x, twice):
        y = x @ params["kernel"]
        return 2 * y if twice else y

    x = jnp.asarray(np.random.default_rng(1).normal(size=(50, 7)), jnp.float32)
    fitted = variance_preserving_init(apply, {"kernel": KERNEL}, x, True)
    assert abs(float((x @ fitted["kernel"]).var()) - 1) < 1e-5
