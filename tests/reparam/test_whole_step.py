"""One whole step of training: v0 - lr gradient, in every leaf, and no leaf but by the optimizer."""

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
#: float32 products of a whole layer, whose sums run over samples and weights.
LAYER = {"rtol": 2e-5, "atol": 2e-5}


def test_sgd_moves_the_raw_leaves_by_the_rate_times_their_gradient(row: Row) -> None:
    """Of a model that runs with the effective kernel, and keeps its own."""
    model = nnx.Linear(8, 6, use_bias=False, rngs=nnx.Rngs(0))
    apply, _, state = functionalize(model)
    raw, kept = {"kernel": random_node(row, "dense")}, np.array(model.kernel[...])
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
    np.testing.assert_array_equal(model.kernel[...], kept)
    x, kernel = np.float64(X), oracle_value(row, raw["kernel"])
    assert_near(output, x @ kernel, LAYER)
    wanted = oracle_gradients(row, raw["kernel"], 2 * x.T @ (x @ kernel - np.float64(Y)) / Y.size)
    for new, old, gradient in zip(*map(jax.tree.leaves, (after, before)), wanted, strict=True):
        assert_near(new, old - RATE * gradient, LAYER)
