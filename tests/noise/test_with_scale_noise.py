"""Noise on the scales of a network, against NumPy with the same draws."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    Scaled,
    collect_preactivations,
    effective,
    exclude,
    read,
    with_scale_noise,
)
from tests.draws import draw
from tests.tolerances import FLOAT32, HALF
from tests.trees import assert_equal, largest_difference

ROWS, SIDE, CHANNELS, UNITS, CLASSES = 6, 4, 3, 5, 2
SIGMA = 0.4
HIDDEN = exclude("^head/")


X = draw(0, ROWS, SIDE, SIDE, 1)
PARAMS = {
    "conv": {"kernel": draw(1, 1, 1, 1, CHANNELS), "bias": draw(2, CHANNELS)},
    "dense": {"kernel": draw(3, CHANNELS, UNITS), "bias": draw(4, UNITS)},
    "head": {"kernel": draw(5, UNITS, CLASSES), "bias": draw(6, CLASSES)},
}


def apply(params: Any, x: Any) -> Any:
    """A 1 x 1 convolution, the mean over positions, a hidden layer, a classifier."""
    conv, dense, head = (params[name] for name in ("conv", "dense", "head"))
    x = jax.lax.conv_general_dilated(
        x, conv["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = jax.nn.relu(x + conv["bias"][None, None, None]).mean((1, 2))
    x = jnp.tanh(x @ dense["kernel"] + dense["bias"][None])
    return x @ head["kernel"] + head["bias"][None]


def factors(key: Any, path: str, per: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draws 1 + n of a layer, one row at a time, from the keys that the docstring promises."""

    def of_key(key: Any, shape: tuple[int, ...]) -> np.ndarray:
        for number in (zlib.crc32(path.encode()), 0):
            key = jax.random.fold_in(key, number)
        return 1 + SIGMA * np.asarray(jax.random.normal(key, shape), np.float64)

    ones = (1,) * (len(shape) - 2)
    if per == "step":
        return of_key(key, (1, *ones, shape[-1]))
    of_row = shape[1:] if per == "position" else (*ones, shape[-1])
    return np.stack([of_key(row, of_row) for row in jax.random.split(key, shape[0])])


def oracle(key: Any, per: str, params: Any = PARAMS) -> np.ndarray:
    """Output of the network in float64 NumPy."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    product = np.asarray(X, np.float64) @ p["conv"]["kernel"][0, 0]
    product = product * factors(key, "conv/kernel", per, product.shape)
    x = np.maximum(product + p["conv"]["bias"], 0).mean((1, 2))
    product = x @ p["dense"]["kernel"]
    product = product * factors(key, "dense/kernel", per, product.shape)
    x = np.tanh(product + p["dense"]["bias"])
    return x @ p["head"]["kernel"] + p["head"]["bias"]


@pytest.mark.kept("sample")
@pytest.mark.parametrize("per", ["sample", "position", "step"])
def test_each_product_is_multiplied_before_its_bias(per: Any, key: Any) -> None:
    noisy = with_scale_noise(apply, SIGMA, layout=HIDDEN, per=per)
    root = key()
    np.testing.assert_allclose(noisy(root, PARAMS, X), oracle(root, per), **FLOAT32)


def test_stddev_is_not_differentiated(key: Any) -> None:
    root = key()

    def loss(stddev: Any) -> Any:
        return with_scale_noise(apply, stddev, layout=HIDDEN)(root, PARAMS, X).sum()

    assert float(jax.grad(loss)(jnp.float32(0.3))) == 0.0


def linear(params: Any, x: Any) -> Any:
    return x @ params["kernel"]


def test_a_draw_depends_on_key_kernel_and_place_alone(key: Any) -> None:
    """Other rows and other layers change no draw; a second use of a kernel draws anew."""
    keys = jax.random.split(key(), ROWS)
    noisy = with_scale_noise(apply, SIGMA, layout=HIDDEN)
    whole = noisy(keys, PARAMS, X)
    np.testing.assert_allclose(noisy(keys[2:4], PARAMS, X[2:4]), whole[2:4], **FLOAT32)
    alone = with_scale_noise(lambda p, x: x @ p["dense"]["kernel"], SIGMA)
    actual = alone(keys, {"dense": {"kernel": jnp.ones((1, UNITS))}}, jnp.ones((ROWS, 1)))
    expected = np.stack([factors(k, "dense/kernel", "step", (1, UNITS))[0] for k in keys])
    np.testing.assert_allclose(actual, expected, **FLOAT32)
    twice = with_scale_noise(lambda p, x: (x @ p["kernel"], x @ p["kernel"]), SIGMA)
    first, second = twice(keys, {"kernel": jnp.ones((1, UNITS))}, jnp.ones((ROWS, 1)))
    assert largest_difference(first, second) > SIGMA


def test_a_sum_with_more_positions_than_the_product(key: Any) -> None:
    """Rows without positions plus embeddings of positions: the draw belongs to the product."""
    positions, kernel, root = draw(7, 3, UNITS), draw(8, CHANNELS, UNITS), key()
    x = draw(9, ROWS, CHANNELS)
    model = lambda p, x: x[:, None] @ p["kernel"] + positions[None]  # noqa: E731
    actual = with_scale_noise(model, SIGMA)(root, {"kernel": kernel}, x)
    product = np.asarray(x, np.float64)[:, None] @ np.asarray(kernel, np.float64)
    product = product * factors(root, "kernel", "sample", product.shape)
    np.testing.assert_allclose(actual, product + np.asarray(positions), **FLOAT32)


@pytest.mark.parametrize("stddev", [0, 0.0, None, {"conv": None, "dense": 0, "head": None}])
def test_no_noise_changes_no_bit(stddev: Any, key: Any) -> None:
    noisy = with_scale_noise(apply, stddev, layout=HIDDEN)
    assert_equal(noisy(key(), PARAMS, X), apply(PARAMS, X))


def test_a_stddev_for_each_layer_and_nodes_for_kernels(key: Any) -> None:
    root = key()
    raw = {**PARAMS, "dense": {**PARAMS["dense"], "kernel": Scaled.from_kernel(draw(3, 3, 5), -2)}}
    tree = {"conv": None, "dense": SIGMA, "head": None}
    actual = with_scale_noise(apply, tree)(root, raw, X)
    only = with_scale_noise(apply, SIGMA, layout=exclude("^(head|conv)/"))
    assert_equal(actual, only(root, effective(raw), X))
    assert largest_difference(actual, apply(PARAMS, X)) > SIGMA / 10


def test_collected_preactivations_have_the_noise(key: Any) -> None:
    """One pass has both: what `collect_preactivations` returns is what the layer sees."""
    root = key()
    collect = lambda p, x: collect_preactivations(read(apply, p, x), layout=HIDDEN)  # noqa: E731
    output, layers = with_scale_noise(collect, SIGMA, layout=HIDDEN)(root, PARAMS, X)
    np.testing.assert_allclose(output, oracle(root, "sample"), **FLOAT32)
    conv = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), PARAMS["conv"])
    product = np.asarray(X, np.float64) @ conv["kernel"][0, 0]
    expected = product * factors(root, "conv/kernel", "sample", product.shape) + conv["bias"]
    np.testing.assert_allclose(layers["conv/kernel"], expected, **FLOAT32)


def test_half_types_are_kept_and_computed_wide(key: Any) -> None:
    root = key()
    params, x = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (PARAMS, X))
    actual = with_scale_noise(apply, SIGMA, layout=HIDDEN)(root, params, x)
    assert actual.dtype == jnp.bfloat16
    expected = oracle(root, "sample")
    assert (
        np.abs(np.asarray(actual, np.float64) - expected).max()
        < HALF["atol"] * np.abs(expected).max()
    )


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg", "raw"])
def test_any_generator_gives_the_same_draws_to_any_batch(impl: str) -> None:
    """Under vmap, rbg's own draws depend on the other rows."""
    seed = jax.random.PRNGKey(3) if impl == "raw" else jax.random.key(3, impl=impl)
    keys = jax.random.split(seed, ROWS)
    noisy = with_scale_noise(apply, SIGMA, layout=HIDDEN)
    if impl != "raw":
        whole, part = noisy(keys, PARAMS, X), noisy(keys[1:3], PARAMS, X[1:3])
        np.testing.assert_allclose(part, whole[1:3], **FLOAT32)
    assert largest_difference(noisy(seed, PARAMS, X), apply(PARAMS, X)) > SIGMA / 10


TOWERS = {"image": {"kernel": draw(80, 5, 3)}, "text": {"kernel": draw(81, 4, 3)}}


def towers(p: Any, x: Any, y: Any) -> Any:
    """Scores of each row of one input with each of the other, as of CLIP."""
    return jnp.tanh(x @ p["image"]["kernel"]) @ jnp.tanh(y @ p["text"]["kernel"]).T


@pytest.mark.parametrize(
    "apply",
    [
        towers,
        lambda p, x, y: {"x": x @ p["image"]["kernel"], "y": y @ p["text"]["kernel"]},
        lambda p, x, y: (
            jax.vmap(lambda y: y @ p["text"]["kernel"])(y).sum() + x @ p["image"]["kernel"]
        ),
    ],
)
def test_two_towers_have_noise_of_their_own_rows(apply: Any) -> None:
    """The draws of a tower are those of the tower alone."""
    x, y, key = draw(82, 6, 5), draw(83, 6, 4), jax.random.key(0)
    noisy = with_scale_noise(apply, 0.5)(key, TOWERS, x, y)
    products = [
        with_scale_noise(lambda p, x, name=name: x @ p[name]["kernel"], 0.5, layout=only(name))(
            key, TOWERS, rows
        )
        for name, rows in (("image", x), ("text", y))
    ]
    given = {"image": {"kernel": jnp.eye(3)}, "text": {"kernel": jnp.eye(3)}}
    expected = apply(given, *products)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), noisy, expected)


def only(name: str) -> Any:
    return exclude(f"^{'text' if name == 'image' else 'image'}/")


def test_a_tower_of_another_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="text/kernel"):
        with_scale_noise(towers, 0.5)(jax.random.key(0), TOWERS, draw(82, 6, 5), draw(83, 7, 4))
