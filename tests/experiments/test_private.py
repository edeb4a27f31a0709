"""Differentially private training: its step, its noise, and refused methods."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize, stats

from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.training.private import LARGEST_NORM, noise_multiplier, private_optimizer
from experiments.training.trainer import make_trainer
from tests.experiments.parallel import with_keys
from tests.experiments.toy import SETTINGS, start, toy_dataset


def private(name, epsilon=2.0, **settings):
    config = SETTINGS.changed(epsilon=epsilon, **settings)
    return make_trainer(METHODS[name], config, toy_dataset())


@pytest.mark.slow
def test_a_step_takes_the_mean_of_clipped_gradients_of_single_rows():
    """Compares with gradients of one row at a time; an epsilon of a million needs no noise."""
    data, trainer = toy_dataset(), private("none", 1e6, weight_decay=0.0)
    state, (X, y) = start(trainer, 0), data[:2]

    def loss(params, x, label):
        logits = trainer.context.functional.apply(params, state.model_state, x[None], train=True)[0]
        return -jax.nn.log_softmax(logits[0])[label]

    gradient_of = jax.jit(jax.grad(loss))
    gradients = [gradient_of(state.params, *row) for row in zip(X[:16], y[:16], strict=True)]
    clipped = []
    for gradient in gradients:
        leaves = [np.float64(leaf) for leaf in jax.tree.leaves(gradient)]
        norm = np.sqrt(sum((leaf**2).sum() for leaf in leaves))
        clipped.append([leaf * min(1, LARGEST_NORM / norm) for leaf in leaves])
    mean = [np.mean(leaves, axis=0) for leaves in zip(*clipped, strict=True)]
    after, _ = jax.jit(trainer.step)(state, with_keys(X[:16], y[:16]))
    moved = jax.tree.map(lambda old, new: (old - new) / 0.05, state.params, after.params)
    noise = noise_multiplier(1e6, 0.1 / 70, 16 / 70, 12)
    for got, wanted in zip(jax.tree.leaves(moved), mean, strict=True):
        np.testing.assert_allclose(got, wanted, atol=6 * noise / 16 + 1e-5)
    assert noise < 0.05


def test_the_noise_is_that_of_the_gaussian_mechanism_where_all_rows_are_in_every_batch():
    """T steps with noise s equal one with noise s / sqrt(T), whose least delta is known (Balle and
    Wang 2018, theorem 8). The accounting by Rényi divergences is a close upper bound."""
    epsilon, delta, steps = 2.0, 1e-4, 40

    def excess(noise):
        mu = np.sqrt(steps) / noise
        tails = stats.norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return tails[0] - np.exp(epsilon) * tails[1] - delta

    exact = optimize.brentq(excess, 1, 1000)
    assert exact <= noise_multiplier(epsilon, delta, 1.0, steps) <= 1.15 * exact


@pytest.mark.slow
def test_the_noise_has_its_deviation_over_the_rows():
    def of_zeros(seed):
        optimizer = private_optimizer(optax.identity(), 2.0, 0.1, 50, 1000, seed)
        zeros = {"kernel": jnp.zeros((20, 300, 40))}
        update, _ = optimizer.update(zeros, optimizer.init({"kernel": zeros["kernel"][0]}))
        return np.asarray(update["kernel"])

    noise, drawn = noise_multiplier(2.0, 1e-4, 0.1, 50), of_zeros(0)
    np.testing.assert_allclose(drawn.std(), noise * LARGEST_NORM / 20, rtol=0.03)
    assert not np.array_equal(drawn, of_zeros(1))


@pytest.mark.slow
def test_projections_after_the_noise_keep_kernels_on_their_set():
    trainer = private("cwo")
    state = start(trainer, 0)
    X, y = toy_dataset()[:2]
    after, metrics = jax.jit(trainer.step)(state, with_keys(X[:16], y[:16]))
    kernel = np.float64(after.params["blocks"][0]["linear"]["kernel"].kernel)
    np.testing.assert_allclose(kernel.sum(0), 0, atol=1e-5)
    np.testing.assert_allclose((kernel**2).sum(0), 2, rtol=1e-5)
    assert np.isfinite(metrics.loss)


@pytest.mark.parametrize("name", ["bn", "vcl", "pn", "cwn", "lcw", "bn+dropout"])
def test_methods_whose_rows_see_each_other_are_refused(name):
    with pytest.raises(UserError, match=f"epsilon.*{name.replace('+', '.')}"):
        private(name)


def test_microbatches_are_refused():
    with pytest.raises(UserError, match="accumulate"):
        private("none", accumulate=2)
