"""The dynamic graph network: its size, its graph, and its invariances."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.config import Config
from experiments.errors import UserError
from experiments.models.dgcnn import edge_features, nearest_neighbours
from experiments.models.registry import build
from jaxnorm import WeightNormalized, effective, parameter_count, reparametrize
from jaxnorm.nnx import functionalize


def network(shape: tuple[int, ...], channels: int = 64, norm: str | None = "bn") -> nnx.Module:
    return build(Config(model="dgcnn", channels=channels), shape, 40, nnx.Rngs(0), norm=norm)


def test_parameter_count() -> None:
    """The paper has 1.8M: kernels, scales and biases of all layers, and the classifier."""
    params = functionalize(nnx.eval_shape(lambda: network((1024, 3)))).params
    kernels = 6 * 64 + 128 * 64 + 128 * 128 + 256 * 256 + 512 * 1024 + 2048 * 512 + 512 * 256
    affine = 2 * (64 + 64 + 128 + 256 + 1024 + 512 + 256)
    assert parameter_count(params) == kernels + affine + 257 * 40 == 1_809_320


def clouds() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 30, 3)).astype(np.float32)


def neighbours_by_hand(x: np.ndarray, count: int) -> np.ndarray:
    differences = x[:, :, None].astype(np.float64) - x[:, None]
    return np.argsort(np.square(differences).sum(-1), axis=-1)[..., :count]


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_neighbours(shift: float) -> None:
    x = clouds()
    expected = neighbours_by_hand(x, 7)
    np.testing.assert_array_equal(
        nearest_neighbours(jnp.asarray(x + np.float32(shift)), 7), expected
    )
    np.testing.assert_array_equal(expected[..., 0], np.tile(np.arange(30), (2, 1)))


def test_a_small_cloud_is_its_own_neighbourhood() -> None:
    got = nearest_neighbours(jnp.asarray(clouds()[:, :4]), 7)
    np.testing.assert_array_equal(np.sort(got), np.broadcast_to(np.arange(4), (2, 4, 4)))


def test_edges() -> None:
    x = clouds()
    got = edge_features(jnp.asarray(x), 5)
    for row, point, place in ((0, 0, 0), (1, 7, 3), (0, 29, 4)):
        other = neighbours_by_hand(x, 5)[row, point, place]
        expected = np.concatenate([x[row, other] - x[row, point], x[row, point]])
        np.testing.assert_array_equal(got[row, point, place], expected)


@pytest.mark.slow
def test_the_order_of_points_is_nothing_and_their_place_is_something() -> None:
    """Weights are computed from parameters, as for methods on weights."""
    apply, params, state = functionalize(network((30, 3), channels=4, norm=None))
    raw = reparametrize(params, WeightNormalized)
    run = jax.jit(lambda x: apply(effective(raw), state, x, train=False)[0])
    x = clouds()
    logits = run(x)
    # Of 30 points in another order the mean is the same up to its rounding.
    shuffled = x[:, np.random.default_rng(1).permutation(30)]
    np.testing.assert_allclose(run(shuffled), logits, rtol=1e-4, atol=1e-5)
    assert np.abs(run(x + np.float32(1)) - logits).max() > 1e-2


def test_dropout_is_in_the_head_alone() -> None:
    apply, params, state = functionalize(nnx.eval_shape(partial(network, (30, 3), channels=4)))
    x = jax.ShapeDtypeStruct((2, 30, 3), jnp.float32)
    run = partial(apply, train=True)
    assert jax.eval_shape(run, params, state, x)[0].shape == (2, 40)
    model = nnx.eval_shape(lambda: network((30, 3), channels=4))
    drops = [m.rate for _, m in nnx.iter_modules(model) if isinstance(m, nnx.Dropout)]
    assert drops == [0.5]


def test_rows_that_are_no_clouds_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"dgcnn needs point clouds and got rows of shape \(8, 8, 1\)"
    ):
        network((8, 8, 1))
