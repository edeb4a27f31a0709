"""`with_first_rows` is the naive slice in value and gradient, for fewer bytes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.losses import variance_constancy_loss, with_first_rows


def draw(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def tapped(x: jax.Array, w: jax.Array, groups: int) -> Any:
    h, rows = with_first_rows(x @ w, 4, groups)
    return jnp.square(jax.nn.elu(h)).mean(), variance_constancy_loss(rows, 1.0, groups=groups)


def naive(x: jax.Array, w: jax.Array, groups: int) -> Any:
    h = x @ w
    return jnp.square(jax.nn.elu(h)).mean(), variance_constancy_loss(h, 1.0, groups=groups)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_values_and_gradients_are_those_of_the_slice(groups: int) -> None:
    arguments = draw(0, 24, 5), draw(1, 5, 3)
    results = [
        jax.jit(jax.value_and_grad(lambda x, w, f=f: sum(f(x, w, groups)), (0, 1)))(*arguments)
        for f in (tapped, naive)
    ]
    for got, wanted in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_the_array_is_the_same_and_the_rows_are_the_first_of_each_part() -> None:
    x = draw(2, 6, 2, 2)
    same, rows = with_first_rows(x, 2, 2)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(rows, np.asarray(x)[[0, 1, 3, 4]])


@pytest.mark.parametrize("use", ["array", "rows"])
def test_either_result_may_be_left_unused(use: str) -> None:
    x = draw(3, 6, 2)
    index = ("array", "rows").index(use)
    gradient = jax.grad(lambda x: with_first_rows(x, 2)[index].sum())(x)
    wanted = np.ones((6, 2)) if use == "array" else np.repeat([1.0, 0.0], [2, 4])[:, None]
    np.testing.assert_array_equal(gradient, np.broadcast_to(wanted, (6, 2)))


def bytes_accessed(f: Any) -> float:
    """Of the gradient of four wide layers, each with a loss on its pre-activations."""

    def loss(x: jax.Array, weights: list[jax.Array]) -> jax.Array:
        total = jnp.zeros(())
        for w in weights:
            h, term = f(x @ w)
            x, total = jax.nn.elu(h), total + term
        return jnp.square(x).mean() + total

    x, weights = jnp.ones((1024, 256)), [jnp.ones((256, 256))] * 4
    cost = jax.jit(jax.grad(loss, 1)).lower(x, weights).compile().cost_analysis()
    return float(cost["bytes accessed"])


def test_it_reads_and_writes_hardly_more_than_the_network_alone() -> None:
    def with_rows(h: jax.Array) -> Any:
        h, rows = with_first_rows(h, 4)
        return h, variance_constancy_loss(rows, 1.0)

    plain = bytes_accessed(lambda h: (h, jnp.zeros(())))
    tapped = bytes_accessed(with_rows)
    assert tapped < 1.02 * plain


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"first 5 samples.*batch of 8 has 4"):
        with_first_rows(jnp.ones((8, 2)), 5, 2)
    with pytest.raises(ValueError, match="groups=3 does not divide the 8 samples"):
        with_first_rows(jnp.ones((8, 2)), 2, 3)
