"""Gradients in bfloat16 of kernels in float32: the kernels stay on their set."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import constrain, linearly_constrain
from tests.tolerances import DRIFT
from tests.trees import train

FAN_IN, UNITS = 1024, 16


def after_fifty_steps(constraint: Any) -> np.ndarray[Any, Any]:
    """The kernel in float64. The gradients have a mean, and a part along the weights."""
    draws = np.random.default_rng(0).normal(size=(FAN_IN, UNITS))
    raw, tx = constraint({"kernel": jnp.asarray(draws, jnp.float32)}, optax.sgd(0.1))

    def gradients(params: Any, time: jax.Array) -> Any:
        return jax.tree.map(lambda p: (jnp.sin(time * p) + p).astype(jnp.bfloat16), params)

    raw = train(tx, raw, gradients, 50)
    (kernel,) = (leaf for leaf in jax.tree.leaves(raw) if leaf.ndim == 2)
    return np.asarray(kernel, np.float64)


@pytest.mark.usefixtures("standard_promotion")
def test_kernels_stay_on_the_sphere() -> None:
    kernel = after_fifty_steps(constrain)
    assert np.abs(kernel.sum(0)).max() < DRIFT
    assert np.abs((kernel**2).sum(0) - 2).max() < DRIFT


@pytest.mark.usefixtures("standard_promotion")
def test_linearly_constrained_kernels_keep_their_sums() -> None:
    """Of weights of size 1: the rounding of 1024 of them."""
    assert np.abs(after_fifty_steps(linearly_constrain).sum(0)).max() < 1e-4
