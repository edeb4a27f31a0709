"""Normalization propagated through nine random layers, and how the paper's constants drift."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
