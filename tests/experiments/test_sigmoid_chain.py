"""Twenty sigmoid layers at initialization: the theory of gradients against measurements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.lcw.fig4 import pooled_ratio, sigmoid_chain
from jaxnorm.theory.lcw import gradient_gain

DEPTH, WIDTH, SEEDS = 20, 128, 3
X = jax.random.uniform(jax.random.key(7), (100, WIDTH))
KEYS = jax.random.split(jax.random.key(0), SEEDS)
#: (constrained, pooled)
LCW, PLAIN, PLAIN_BY_UNIT = CASES = (True, True), (False, True), (False, False)


@pytest.fixture(scope="module")
def measured():
    """Returns the ratios of the gradients' variances per seed, and two layers, by case."""

    def run(case, key):
        chain = sigmoid_chain(key, X, DEPTH, constrained=case[0], pooled=case[1])
        return pooled_ratio(chain.gradients), jax.tree.map(lambda x: x[-2:], chain)

    over_seeds = jax.vmap(run, (None, 0))
    ratios, ends = jax.jit(jax.vmap(over_seeds, (0, None)))(jnp.array(CASES), KEYS)
    found = jax.tree.map(np.float64, (ratios, ends))
    return {case: jax.tree.map(lambda x, i=i: x[i], found) for i, case in enumerate(CASES)}


@pytest.mark.parametrize("case", [LCW, PLAIN])
def test_the_gradient_is_that_of_theory(measured, case):
    """The theory is the gain of wide layers to the power of 19. The gain of a layer of 128 units
    varies by sqrt(2 / 128), and that of 19 layers by half an e-fold; plain layers, whose units'
    means are random as well, vary by twice that. Four such deviations are allowed."""
    predicted = gradient_gain(jax.nn.sigmoid, case[0]) ** (DEPTH - 1)
    folds = np.abs(np.log(measured[case][0] / predicted))
    assert folds.max() < (2.0 if case == LCW else 4.0)


def test_with_one_variance_a_unit_nothing_vanishes(measured):
    """The other reading of section 4.3 does not show the paper's effect."""
    ratios = measured[PLAIN_BY_UNIT][0]
    assert ratios.min() > 2
    assert ratios.max() < 12


def test_a_layer_is_what_numpy_says(measured):
    """Computes the last of twenty layers from the one before, and its gradients backwards."""
    kernel = jax.random.normal(jax.random.split(KEYS[0], 4)[1], (DEPTH - 1, WIDTH, WIDTH))[-1]
    kernel = np.asarray(kernel, np.float64)
    z, gradients = (x[0] for x in measured[LCW][1])
    a = 1 / (1 + np.exp(-z[0]))
    product = a @ (kernel - kernel.mean(0))
    np.testing.assert_allclose(z[1], product / product.std(), rtol=1e-4, atol=1e-4)
    back = gradients[1] @ ((kernel - kernel.mean(0)) / product.std()).T * a * (1 - a)
    np.testing.assert_allclose(gradients[0], back, rtol=1e-3, atol=1e-4 * back.std())


def test_ratios_of_vanished_gradients_do_not_underflow():
    """The squares of the gradients underflow in float32."""
    ratio = pooled_ratio(jnp.stack([1e-28 * X, 1e-22 * X]))
    np.testing.assert_allclose(ratio, 1e-12, rtol=1e-5)
