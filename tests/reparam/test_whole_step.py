"""Step of SGD on raw parameters: v - rate * gradient for every leaf, by the oracles."""

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from jaxnorm import effective
from jaxnorm.nnx import functionalize
from tests.reparam.table import Row, normal, random_node
from tests.reparam.trees import assert_near, oracle_gradients, oracle_value
from tests.trees import assert_equal

RATE = 0.3
X, Y = normal(20, (16, 8)), normal(21, (16, 6))
#: Tolerance of float32 products of a layer, with sums over samples and weights.
LAYER = {"rtol": 2e-5, "atol": 2e-5}


def test_sgd_moves_raw_leaves_by_the_rate_times_their_gradient(row: Row) -> None:
    """The model runs with the effective kernel, and its own parameters are unchanged."""
    model = nnx.Linear(8, 6, use_bias=False, rngs=nnx.Rngs(0))
    apply, _, state = functionalize(model)
    raw, initial = {"kernel": random_node(row, "dense")}, np.array(model.kernel[...])
    before, optimizer = jax.tree.map(np.array, raw), optax.sgd(RATE)

    def loss(raw: Any) -> Any:
        output = apply(effective(raw), state, X, train=True)[0]
        return ((output - Y) ** 2).mean(), output

    @jax.jit
    def step(raw: Any, state: Any) -> Any:
        gradient, output = jax.grad(loss, has_aux=True)(raw)
        return optax.apply_updates(raw, optimizer.update(gradient, state, raw)[0]), output

    after, output = step(raw, optimizer.init(raw))
    assert_equal(raw, before)
    np.testing.assert_array_equal(model.kernel[...], initial)
    x, kernel = np.float64(X), oracle_value(row, raw["kernel"])
    assert_near(output, x @ kernel, LAYER)
    expected = oracle_gradients(row, raw["kernel"], 2 * x.T @ (x @ kernel - np.float64(Y)) / Y.size)
    for new, old, gradient in zip(*map(jax.tree.leaves, (after, before)), expected, strict=True):
        assert_near(new, old - RATE * gradient, LAYER)
