"""`fold_batch_norm` and `replace_batch_norm` on this library's own normalization layers."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import (
    BatchNorm,
    PopulationNorm,
    Standardization,
    fold_batch_norm,
    replace_batch_norm,
)
from tests.nnx.cases import evaluated, kinds, variables

WIDTH, EPSILON = 4, 0.1
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 5, 3)), jnp.float32)
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}

LAYERS = {
    "full": lambda: BatchNorm(WIDTH, epsilon=EPSILON),
    "ghost": lambda: BatchNorm(WIDTH, epsilon=EPSILON, groups=2),
    "mean": lambda: BatchNorm(WIDTH, epsilon=EPSILON, use_variance=False),
    "variance": lambda: BatchNorm(WIDTH, epsilon=EPSILON, use_mean=False),
    "no_affine": lambda: BatchNorm(WIDTH, epsilon=EPSILON, use_scale=False, use_bias=False),
    "mean_no_affine": lambda: BatchNorm(
        WIDTH, epsilon=EPSILON, use_variance=False, use_scale=False, use_bias=False
    ),
    "population": lambda: PopulationNorm(WIDTH, epsilon=EPSILON),
    "standardization": lambda: Standardization(WIDTH, epsilon=EPSILON),
}
EACH = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
VALUES = {
    name: np.random.default_rng(seed).uniform(0.5, 2, WIDTH)
    for seed, name in enumerate(("mean", "var", "scale", "bias"))
}


def model(make: Callable[[], Any], use_bias: bool = True) -> nnx.Sequential:
    """A zero-padded convolution, the layer with values as if trained, and an activation."""
    conv = nnx.Conv(3, WIDTH, (3, 3), use_bias=use_bias, rngs=nnx.Rngs(0))
    norm = make()
    for name, values in VALUES.items():
        if getattr(norm, name) is not None:
            getattr(norm, name)[...] = jnp.asarray(values, jnp.float32)
    return nnx.Sequential(conv, norm, nnx.relu)


def by_hand(of: nnx.Sequential) -> Any:
    """The convolution's own output, then float64 NumPy; what is missing is left out by its name."""
    norm: Any = of.layers[1]
    has = {name: getattr(norm, name) is not None for name in VALUES}
    x = np.asarray(of.layers[0](X), np.float64)
    x = x - VALUES["mean"] if has["mean"] else x
    x = x / np.sqrt(VALUES["var"] + EPSILON) if has["var"] else x
    x = x * VALUES["scale"] if has["scale"] else x
    return np.maximum(x + VALUES["bias"] if has["bias"] else x, 0)


@EACH
@pytest.mark.parametrize("use_bias", [True, False])
def test_folded_is_what_the_layer_computes_in_evaluation(make: Any, use_bias: bool) -> None:
    original = model(make, use_bias)
    folded, remaining = fold_batch_norm(original, X)
    assert not remaining
    assert kinds(folded)["layers/1"] == "Identity"
    assert set(variables(folded)) == {"layers/0/kernel", "layers/0/bias"}
    np.testing.assert_allclose(folded(X), by_hand(original), **FLOAT32)
    np.testing.assert_allclose(evaluated(original, X), by_hand(original), **FLOAT32)


@EACH
def test_replaced_is_a_scale_and_a_bias(make: Any) -> None:
    original = model(make)
    norm: Any = original.layers[1]
    replaced: Any = replace_batch_norm(original)
    layer = replaced.layers[1]
    assert type(layer).__name__ == "ScaleAndBias"
    for was, now in ((norm.scale, layer.channel_scale), (norm.bias, layer.bias)):
        assert (was is None) == (now is None)
        if was is not None:
            np.testing.assert_array_equal(was[...], now[...])


@EACH
def test_a_new_layer_after_a_kernel_leaves_nothing(make: Any) -> None:
    original = model(make)
    norm: Any = original.layers[1]
    if norm.scale is not None:
        norm.scale[...] = jnp.ones(WIDTH)
    replaced = replace_batch_norm(original, X)
    assert kinds(replaced)["layers/1"] == "Identity"
    shift = 0 if norm.bias is None else VALUES["bias"]
    wanted = np.maximum(np.asarray(original.layers[0](X), np.float64) + shift, 0)
    np.testing.assert_allclose(replaced(X), wanted, **FLOAT32)


def test_standardization_after_an_activation_remains_when_folding() -> None:
    dense = nnx.Linear(3, WIDTH, rngs=nnx.Rngs(0))
    original = nnx.Sequential(dense, nnx.relu, Standardization(WIDTH))
    folded, remaining = fold_batch_norm(original, X)
    assert remaining == [("layers", 2)]
    assert folded.layers[2].use_running_average


@pytest.mark.parametrize("kernel_type", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("norm_type", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("norm", [nnx.BatchNorm, BatchNorm])
def test_the_type_that_a_layer_was_told_to_give_is_kept(
    norm: Any, norm_type: Any, kernel_type: Any
) -> None:
    """What comes after it computes in that type: with its BatchNorm gone it took the kernel's."""
    rngs, x = nnx.Rngs(0), jnp.ones((4, 3))
    linear = nnx.Linear(3, 5, dtype=kernel_type, rngs=rngs)
    model = nnx.Sequential(linear, norm(5, dtype=norm_type, rngs=rngs))
    model.eval()
    taken_out = (fold_batch_norm(model, x).model, replace_batch_norm(model, x))
    for other in (model, *taken_out, replace_batch_norm(model)):
        assert other(x).dtype == norm_type
