"""Every kind of normalization layer, Flax's and this library's, folded and replaced."""

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
from tests.nnx.models import Activated, dense, norm

WIDTH, EPSILON = 4, 0.1
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 5, 3)), jnp.float32)
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
NEITHER = {"use_scale": False, "use_bias": False}


def ours(**options: Any) -> Callable[[], Any]:
    return lambda: BatchNorm(WIDTH, epsilon=EPSILON, **options)


def flax(**options: Any) -> Callable[[], Any]:
    return lambda: nnx.BatchNorm(WIDTH, epsilon=EPSILON, rngs=nnx.Rngs(0), **options)


LAYERS: dict[str, Callable[[], Any]] = {
    "flax": flax(),
    "flax, no scale": flax(use_scale=False),
    "flax, no bias": flax(use_bias=False),
    "flax, neither": flax(**NEITHER),
    "full": ours(),
    "ghost": ours(groups=2),
    "mean": ours(use_variance=False),
    "variance": ours(use_mean=False),
    "neither": ours(**NEITHER),
    "mean, neither": ours(use_variance=False, **NEITHER),
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
    layer = make()
    for name, values in VALUES.items():
        if getattr(layer, name) is not None:
            getattr(layer, name)[...] = jnp.asarray(values, jnp.float32)
    return nnx.Sequential(conv, layer, nnx.relu)


def by_hand(of: nnx.Sequential) -> Any:
    """The convolution's own output, then float64 NumPy; what is missing is left out by its name."""
    own: Any = of.layers[1]
    has = {name: getattr(own, name) is not None for name in VALUES}
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
def test_replaced_is_its_scale_and_its_bias_or_nothing_after_a_kernel(make: Any) -> None:
    """A part that the normalization did not have is not there to be trained."""
    original = model(make)
    own: Any = original.layers[1]
    replaced: Any = replace_batch_norm(original)
    layer = replaced.layers[1]
    assert type(layer).__name__ == "ScaleAndBias"
    for was, now in ((own.scale, layer.channel_scale), (own.bias, layer.bias)):
        assert (was is None) == (now is None)
        if was is not None:
            np.testing.assert_array_equal(was[...], now[...])
    if own.scale is not None:
        own.scale[...] = jnp.ones(WIDTH)
    after_kernel = replace_batch_norm(original, X)
    assert kinds(after_kernel)["layers/1"] == "Identity"
    shift = 0 if own.bias is None else VALUES["bias"]
    wanted = np.maximum(np.asarray(original.layers[0](X), np.float64) + shift, 0)
    np.testing.assert_allclose(after_kernel(X), wanted, **FLOAT32)


class Batchwise(nnx.Module):
    """Normalizes with the batch's statistics whatever the mode."""

    def __init__(self, kind: Any) -> None:
        self.dense, self.norm = dense(nnx.Rngs(0)), kind(8, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.norm(self.dense(x), use_running_average=False)


@pytest.mark.parametrize("kind", [nnx.BatchNorm, BatchNorm])
def test_a_normalization_with_the_batch_s_statistics_is_not_folded(kind: Any) -> None:
    network, x = Batchwise(kind), jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), "f")
    folded, remaining = fold_batch_norm(network, x)
    assert remaining == [("norm",)]
    np.testing.assert_allclose(folded(x), network(x), **FLOAT32)
    assert kinds(replace_batch_norm(network, x))["norm"] == "Identity"


INPUTS = pytest.mark.parametrize("with_inputs", [True, False])


@INPUTS
def test_a_subclass_that_does_more_needs_a_replacement_of_one_s_own(with_inputs: bool) -> None:
    """Its activation was gone without a word; folding leaves it where it is."""
    rngs, x = nnx.Rngs(0), jnp.asarray(np.random.default_rng(0).normal(size=(4, 5)), "f")
    layers = [dense(rngs, 5), Activated(8, rngs=rngs), dense(rngs), norm(rngs)]
    network, inputs = nnx.Sequential(*layers), (x,) if with_inputs else ()
    folded, remaining = fold_batch_norm(network, x)
    assert remaining == [("layers", 1)]
    np.testing.assert_allclose(folded(x), evaluated(network, x), **FLOAT32)
    with pytest.raises(ValueError, match=r"Activated.*with_="):
        replace_batch_norm(network, *inputs)
    replaced = replace_batch_norm(network, *inputs, with_=lambda norm: nnx.Dropout(0.0))
    assert {kinds(replaced)[f"layers/{place}"] for place in (1, 3)} == {"Dropout"}


class Frozen(nnx.Param[Any]):
    """What an optimizer's filter leaves out."""


def test_scales_and_biases_stay_of_their_own_kind() -> None:
    """A frozen bias became a parameter like any other, and was trained."""
    rngs, x = nnx.Rngs(0), jnp.ones((2, 5))
    own = norm(rngs)
    own.scale, own.bias = Frozen(jnp.ones(8), tag="scale"), Frozen(jnp.ones(8), tag="bias")
    network = nnx.Sequential(nnx.Linear(5, 8, use_bias=False, rngs=rngs), own)
    layer = replace_batch_norm(network).layers[1]
    in_linear = (
        replace_batch_norm(network, x).layers[0].bias,
        fold_batch_norm(network, x).model.layers[0].bias,
    )
    every = (layer.channel_scale, layer.bias, *in_linear)
    assert {type(variable) for variable in every} == {Frozen}
    tags = [variable.get_metadata("tag") for variable in every]
    assert tags == ["scale", "bias", "bias", "bias"]


@INPUTS
def test_normalizations_that_share_scale_and_bias_share_them_still(with_inputs: bool) -> None:
    """As those of several domains: each has statistics of its own, and the affine part is one."""
    rngs, x = nnx.Rngs(0), jnp.ones((2, 8))
    norms = [norm(rngs) for _ in range(2)]
    norms[1].scale, norms[1].bias = norms[0].scale, norms[0].bias
    network = nnx.Sequential(dense(rngs), norms[0], nnx.relu, dense(rngs), norms[1])
    replaced = replace_batch_norm(network, *((x,) if with_inputs else ()))
    one, other = replaced.layers[1], replaced.layers[4]
    assert one.bias is other.bias
    assert one.channel_scale is other.channel_scale
    assert one.bias is not norms[0].bias


def test_what_cannot_be_replaced_is_named() -> None:
    rngs, x = nnx.Rngs(0), jnp.ones((2, 8))
    network = nnx.Sequential(dense(rngs), norm(rngs))
    network.layers[1].axis = (-2, -1)
    with pytest.raises(ValueError, match=r"\(-2, -1\).*with_="):
        replace_batch_norm(network)
    for take_out in (replace_batch_norm, fold_batch_norm):
        with pytest.raises(ValueError, match="Linear"):
            take_out(dense(rngs), x)
    alone = replace_batch_norm(norm(rngs), x)
    assert type(alone).__name__ == "ScaleAndBias"
