"""The paper's claim: through 20 sigmoid layers gradients vanish, with LCW they do not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import LinearlyConstrained, effective, reparametrize, variance_preserving_init
from tests.initializers.models import layers, mlp, preactivations, uniform

DEPTH, WIDTH, SAMPLES = 20, 256, 100
X = uniform(SAMPLES, WIDTH)


def network() -> Any:
    """Random kernels and zero biases."""
    params = layers(DEPTH, WIDTH, WIDTH)
    return {name: {**layer, "bias": jnp.zeros(WIDTH)} for name, layer in params.items()}


def gradient_variances(params: Any, x: Any) -> list[float]:
    """Of each layer's pre-activations, first to last, for random gradients at the last: backward
    propagation by hand, in float64 NumPy."""
    forward = [shifted for _, shifted in preactivations(params, x)]
    gradient = np.random.default_rng(5).normal(size=forward[-1].shape)
    result = [float(gradient.var())]
    for number in range(DEPTH - 1, 0, -1):
        a = 1 / (1 + np.exp(-forward[number - 1]))
        kernel = np.asarray(params[f"layer_{number}"]["kernel"], np.float64)
        gradient = (gradient @ kernel.T) * a * (1 - a)
        result.append(float(gradient.var()))
    return result[::-1]


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """The same random network with plain kernels and with constrained ones."""
    starts = {"plain": network(), "lcw": reparametrize(network(), LinearlyConstrained)}
    fit = jax.jit(lambda p: effective(variance_preserving_init(mlp, p, X)))
    return {name: fit(start) for name, start in starts.items()}


@pytest.mark.slow
def test_gradients_vanish_with_plain_weights_and_do_not_with_lcw(fitted: dict[str, Any]) -> None:
    ratio = {}
    for name, params in fitted.items():
        for product, _ in preactivations(params, X):
            np.testing.assert_allclose(product.var(), 1, rtol=5e-5)
        variances = gradient_variances(params, X)
        ratio[name] = variances[0] / variances[-1]
    assert ratio["plain"] < 1e-12
    assert 1 / 5 < ratio["lcw"] < 5


def test_with_plain_weights_the_samples_become_indistinguishable(fitted: dict[str, Any]) -> None:
    """Why: a mean activation that is not zero gives units large means, which eat the variance."""
    last = {name: preactivations(params, X)[-1][0] for name, params in fitted.items()}
    assert last["plain"].var(0).mean() < 1e-9
    assert last["lcw"].var(0).mean() > 0.3
