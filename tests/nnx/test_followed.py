"""Which normalization follows which kernel: what may stand between the two, and what may not."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import fold_batch_norm
from tests.nnx.cases import evaluated, slashed, trained
from tests.nnx.models import WIDTH, Custom, dense, norm

#: The promise, float32: one or two layers with sums over at most 72 weights, values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
#: bfloat16: the kernel, the product, the bias and the normalization round by 2^-9 each, on values
#: up to 8.
BFLOAT16 = {"rtol": 2.0**-6, "atol": 2.0**-5}


def conv(rngs: nnx.Rngs, **settings: Any) -> nnx.Conv:
    return nnx.Conv(4, WIDTH, (3, 3), rngs=rngs, **settings)


def plain(m: Any, x: Any) -> Any:
    return m.norm(m.layer(x))


def jitted(m: Any, x: Any) -> Any:
    return nnx.jit(plain)(m, x)


def returned_too(m: Any, x: Any) -> Any:
    y = m.layer(x)
    return jnp.concatenate([m.norm(y), y], -1)


def other_bias(m: Any, x: Any) -> Any:
    """The bias that is added is a layer's, but not this layer's."""
    return m.norm(m.layer(x) + m.second.bias[...].reshape(1, WIDTH))


def layer_of_a_layer(m: Any, x: Any) -> Any:
    return m.norm(m.second(m.layer(x)))


class Row(NamedTuple):
    """A layer, a function of model and input, the input's shape, and whether it can be folded."""

    name: str
    layer: Callable[[nnx.Rngs], Any]
    forward: Callable[[Any, Any], Any]
    shape: tuple[int, ...]
    folds: bool


def row(
    name: str,
    forward: Any = plain,
    layer: Any = lambda rngs: dense(rngs, 5),
    shape: tuple[int, ...] = (6, 5),
    folds: bool = True,
) -> Any:
    return pytest.param(Row(name, layer, forward, shape, folds), id=name)


IMAGE = (2, 6, 6, 4)
ROWS = [
    row("bias"),
    row("no_bias", layer=lambda rngs: dense(rngs, 5, use_bias=False)),
    row("linear_rank_1", shape=(5,)),
    row("linear_rank_3", shape=(2, 3, 5)),
    row("linear_rank_4", shape=(2, 3, 2, 5)),
    row("layer_of_a_layer", layer_of_a_layer),
    row("convolution", layer=conv, shape=IMAGE),
    row("strided", layer=lambda rngs: conv(rngs, strides=2), shape=IMAGE),
    row("dilated", layer=lambda rngs: conv(rngs, kernel_dilation=2), shape=IMAGE),
    row("grouped", layer=lambda rngs: conv(rngs, feature_group_count=4), shape=IMAGE),
    row("circular", layer=lambda rngs: conv(rngs, padding="CIRCULAR"), shape=IMAGE),
    row("valid", layer=lambda rngs: conv(rngs, padding="VALID"), shape=IMAGE),
    row("jitted", jitted),
    row("jax_jitted", lambda m, x: jax.jit(lambda x: plain(m, x))(x)),
    row("activation_between", lambda m, x: m.norm(nnx.relu(m.layer(x))), folds=False),
    row("scale_between", lambda m, x: m.norm(2.0 * m.layer(x)), folds=False),
    row("roll_between", lambda m, x: m.norm(jnp.roll(m.layer(x), 1, -1)), folds=False),
    row("transposed", lambda m, x: m.norm(m.layer(x.T).T), shape=(5, WIDTH), folds=False),
    row("sum_of_layers", lambda m, x: m.norm(m.layer(x) + m.layer(-x)), folds=False),
    row("another_layer_s_bias", other_bias, folds=False),
    row("returned_too", returned_too, folds=False),
    row(
        "merged_with_positions",
        lambda m, x: m.norm(m.layer(x).reshape(6, WIDTH)),
        lambda rngs: nnx.Linear(5, WIDTH // 2, use_bias=False, rngs=rngs),
        (6, 2, 5),
        folds=False,
    ),
    row(
        "kernel_in_a_product_of_its_own",
        lambda m, x: m.norm(m.layer(x)) + jnp.ones((1, 5)) @ (2 * m.layer.kernel[...]),
        folds=False,
    ),
    row(
        "bias_times_another_kernel",
        lambda m, x: m.norm(m.layer(x)) + m.layer.bias[...][None] @ m.second.kernel[...],
        folds=False,
    ),
    row("read_by_a_mean", lambda m, x: (y := m.layer(x)).mean() + m.norm(y), folds=False),
    row("before_the_layer", lambda m, x: m.layer(m.norm(x)), dense, (6, WIDTH), folds=False),
    row("never_called", lambda m, x: m.layer(x), folds=False),
]


def model_of(row: Row) -> Any:
    rngs = nnx.Rngs(0)
    layers = {"layer": row.layer(rngs), "norm": norm(rngs), "second": dense(rngs)}
    for layer in (layers["layer"], layers["second"]):
        if layer.bias is not None:
            layer.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    return trained(Custom(row.forward, **layers))


def draw(shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype)


@pytest.mark.parametrize("row", ROWS)
def test_folds_or_remains_and_computes_the_same(row: Row) -> None:
    model, x = model_of(row), draw(row.shape)
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ([] if row.folds else ["norm"])
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


@pytest.mark.parametrize("param_dtype", [jnp.float32, jnp.bfloat16])
def test_layers_that_compute_in_bfloat16(param_dtype: Any) -> None:
    """Kernel and bias are converted on the way to the product; they keep their type."""
    rngs = nnx.Rngs(0)
    types = {"dtype": jnp.bfloat16, "param_dtype": param_dtype}
    model = trained(Custom(plain, layer=dense(rngs, 5, **types), norm=norm(rngs, **types)))
    x = draw((6, 5), jnp.bfloat16)
    folded, remaining = fold_batch_norm(model, x)
    assert not remaining
    assert (folded.layer.kernel.dtype, folded.layer.bias.dtype) == (param_dtype, param_dtype)
    wanted = evaluated(model, x)
    assert folded(x).dtype == wanted.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float64(folded(x)), np.float64(wanted), **BFLOAT16)


def test_conversion_between_layer_and_normalization() -> None:
    """The layer computes in bfloat16, the normalization gets float32."""
    rngs = nnx.Rngs(0)
    layers = {"layer": dense(rngs, 5, dtype=jnp.bfloat16), "norm": norm(rngs)}
    model = trained(Custom(lambda m, x: m.norm(m.layer(x).astype(jnp.float32)), **layers))
    x = draw((6, 5))
    folded, remaining = fold_batch_norm(model, x)
    assert not remaining
    assert folded(x).dtype == jnp.float32
    np.testing.assert_allclose(folded(x), evaluated(model, x), **BFLOAT16)


def test_two_normalizations_in_a_row() -> None:
    """The first goes into the kernel; the second follows no kernel then."""
    rngs = nnx.Rngs(0)
    layers = {"layer": dense(rngs, 5), "first": norm(rngs), "second": norm(rngs)}
    model = trained(Custom(lambda m, x: m.second(m.first(m.layer(x))), **layers))
    x = draw((6, 5))
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ["second"]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


def test_layers_that_share_a_kernel_keep_it() -> None:
    rngs = nnx.Rngs(0)
    layers = {"layer": dense(rngs), "norm": norm(rngs), "tied": dense(rngs)}
    layers["tied"].kernel = layers["layer"].kernel
    model = trained(Custom(lambda m, x: m.tied(nnx.relu(m.norm(m.layer(x)))), **layers))
    x = draw((6, WIDTH))
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ["norm"]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)
