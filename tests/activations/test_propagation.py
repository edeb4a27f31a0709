"""Normalization propagated through nine random layers, and how the paper's constants drift."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.models.rectifier import StandardizedRectifier
from jaxnorm import jacobian_factor, project, standardized

DEPTH, WIDTH, SAMPLES = 9, 256, 4096


@pytest.fixture(scope="module")
def kernels():
    """Unit-norm columns, as after `sphere_projection(squared_radius=1.0, centered=False)`."""
    random = np.random.default_rng(0)
    return [
        project({"kernel": jnp.asarray(w, jnp.float32)}, squared_radius=1.0, centered=False)[
            "kernel"
        ]
        for w in random.normal(size=(DEPTH, WIDTH, WIDTH))
    ]


@pytest.fixture(scope="module")
def inputs():
    return jnp.asarray(np.random.default_rng(1).normal(size=(SAMPLES, WIDTH)), jnp.float32)


def statistics(activations):
    """The mean, and the mean over units of their standard deviation over samples."""
    x = np.asarray(activations, np.float64)
    return float(x.mean()), float(x.std(0).mean())


def through(kernels, x, layer):
    """(mean, std) of the pre-activations and of the outputs of every layer."""
    seen = []
    for index, kernel in enumerate(kernels):
        h, x = layer(index, x @ kernel)
        seen.append((*statistics(h), *statistics(x)))
    return np.array(seen)


def test_with_gamma_one_nine_layers_stay_standard(kernels, inputs):
    relu = standardized(jax.nn.relu)
    seen = through(kernels, inputs, lambda i, h: (h, relu(h)))
    assert np.abs(seen[:, [0, 2]]).max() < 0.05
    assert seen[:, [1, 3]].min() > 0.9
    assert seen[:, [1, 3]].max() < 1.1


def test_with_the_papers_gamma_the_deviation_shrinks_and_the_mean_drifts(kernels, inputs):
    """Erratum of sorts: 1 / 1.21 makes the Jacobian one, not the distribution."""
    relu, gamma = standardized(jax.nn.relu), 1 / jacobian_factor(jax.nn.relu)
    seen = through(kernels, inputs, lambda i, h: (gamma * h, relu(gamma * h)))
    assert seen[0, 1] == pytest.approx(0.83, abs=0.01)
    # Over three seeds: 0.23 to 0.26, and -0.35 to -0.34.
    assert seen[-1, 1] == pytest.approx(0.24, abs=0.04)
    assert seen[-1, 2] == pytest.approx(-0.34, abs=0.04)
    assert np.all(np.diff(seen[:, 1]) < 0)


def test_the_exact_rectifier_stays_standard_whatever_the_biases(kernels, inputs):
    """Biases of either sign, as learning makes them; the paper's constants lose mean and scale.

    What is left, 1.04 in the last layer, is the correlation of 256 units: of larger biases, to
    +-1, it makes 1.17, and at width 1024 less.
    """
    biases = np.random.default_rng(2).uniform(-0.5, 0.5, (DEPTH, WIDTH)).astype(np.float32)
    rectifier = StandardizedRectifier(WIDTH)

    def exact(index, h):
        rectifier.bias = nnx.Param(jnp.asarray(biases[index]))
        return h, rectifier(h)

    seen = through(kernels, inputs, exact)
    assert np.abs(seen[:, [0, 2]]).max() < 0.05
    assert seen[:, [1, 3]].min() > 0.9
    assert seen[:, [1, 3]].max() < 1.1
    relu = standardized(jax.nn.relu)
    constants = through(kernels, inputs, lambda i, h: (h, relu(h + biases[i][None])))
    assert np.abs(constants[:, 2]).max() > 0.05


def test_the_rectifier_is_that_of_its_moments():
    """Against the moments of a million draws, for biases from dead to linear."""
    bias = np.array([-1.5, 0.0, 2.0], np.float32)
    draws = np.random.default_rng(3).normal(size=(1_000_000, 1)) + bias
    rectified = np.maximum(draws, 0)
    rectifier = StandardizedRectifier(3)
    rectifier.bias, rectifier.gain = nnx.Param(jnp.asarray(bias)), nnx.Param(jnp.full(3, 2.0))
    x = np.linspace(-2, 2, 9, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    expected = 2 * (np.maximum(x + bias, 0) - rectified.mean(0)) / rectified.std(0)
    np.testing.assert_allclose(rectifier(jnp.asarray(x)), expected, rtol=1e-2, atol=1e-2)
