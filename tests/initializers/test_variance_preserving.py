"""After `variance_preserving_init` every layer's w'x, over samples and units, has variance 1."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import (
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    effective,
    reparametrize,
    variance_preserving_init,
)
from jaxnorm.nnx import layout
from tests.initializers.models import (
    LinenModel,
    Sigmoids,
    apply_of,
    attention,
    convolutions,
    drawn,
    layers,
    linen_outputs,
    linen_params,
    mlp,
    outputs_by_path,
    sigmoid,
    sigmoids,
    uniform,
)
from tests.initializers.unit import UNIT_BFLOAT16, assert_unit, variances
from tests.trees import assert_close


def test_twenty_sigmoid_layers_against_a_numpy_forward_pass() -> None:
    params, x = layers(), uniform(100, 64)
    fitted = jax.jit(lambda p: variance_preserving_init(mlp, p, x))(params)
    assert max(abs(v - 1) for v in variances(params, x)) > 5
    assert_unit(variances(fitted, x))
    for name, layer in params.items():
        np.testing.assert_array_equal(fitted[name]["bias"], layer["bias"])
        ratio = np.asarray(fitted[name]["kernel"]) / np.asarray(layer["kernel"])
        np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-6)


def test_eager_is_jitted_and_a_second_time_changes_nothing() -> None:
    params, x = layers(depth=4), uniform(20, 64)
    once = variance_preserving_init(mlp, params, x)
    assert_close(jax.jit(lambda p, x: variance_preserving_init(mlp, p, x))(params, x), once)
    assert_close(variance_preserving_init(mlp, once, x), once, {"rtol": 1e-5, "atol": 1e-6})


def test_an_ensemble_under_vmap() -> None:
    x, one = uniform(20, 64), layers(depth=3)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, 3 * leaf[::-1]]), one)
    fitted = jax.jit(jax.vmap(lambda p: variance_preserving_init(mlp, p, x)))(both)
    for number in range(2):
        assert_unit(variances(jax.tree.map(lambda leaf, n=number: leaf[n], fitted), x))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bfloat16", "float16"])
def test_half_precision(dtype: Any) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), layers(depth=8))
    x = uniform(100, 64).astype(dtype)
    half = lambda p, x: mlp(p, x).astype(dtype)  # noqa: E731
    fitted = jax.jit(lambda p: variance_preserving_init(half, p, x))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(fitted)} == {jnp.dtype(dtype)}
    assert_unit(variances(fitted, x), UNIT_BFLOAT16)


NODES: dict[str, Callable[[Any, Any], Any]] = {
    "lcw": LinearlyConstrained.from_kernel,
    "wn": WeightNormalized.from_kernel,
    "scaled_lcw": lambda k, axes: Scaled.from_kernel(
        LinearlyConstrained.from_kernel(k, axes), axes
    ),
    "scaled_sn": lambda k, axes: Scaled.from_kernel(
        SpectrallyNormalized.from_kernel(k, axes), axes
    ),
}


@pytest.mark.parametrize("make", NODES.values(), ids=NODES)
def test_reparametrized_kernels_stay_what_they_are(make: Callable[[Any, Any], Any]) -> None:
    raw = reparametrize(layers(depth=6), lambda path, kernel, axes: make(kernel, axes))
    x = uniform(50, 64)
    fitted = jax.jit(lambda r: variance_preserving_init(mlp, r, x))(raw)
    assert jax.tree.structure(fitted) == jax.tree.structure(raw)
    assert_unit(variances(effective(fitted), x))


def test_an_unchanged_nnx_model_with_names_in_no_order() -> None:
    model, x = sigmoids(), uniform(40, 32)
    apply, params = apply_of(model)
    fitted = jax.jit(lambda p: variance_preserving_init(apply, p, x))(params)
    found = outputs_by_path(model, fitted, x)
    assert list(found) == ["zeta", "mid", "alpha"]
    assert_unit([output.var() for output in found.values()])


def test_convolutions_grouped_ones_batch_norm_and_dropout() -> None:
    model, x = convolutions(), uniform(8, 6, 6, 3)
    apply, params = apply_of(model)
    fitted = jax.jit(lambda p: variance_preserving_init(apply, p, x))(params)
    found = outputs_by_path(model, fitted, x)
    assert list(found) == ["stem", "grouped", "classify"]
    assert_unit([output.var() for output in found.values()])


def test_attention_projections() -> None:
    model, x = attention(), uniform(16, 5, 8)
    apply, params = apply_of(model)
    fit = jax.jit(lambda p: variance_preserving_init(apply, p, x, layout=layout(model)))
    found = outputs_by_path(model, fit(params), x)
    assert set(found) == {"query", "key", "value", "out"}
    assert_unit([output.var() for output in found.values()])


def test_a_bfloat16_model_with_float32_parameters() -> None:
    model, x = Sigmoids(nnx.Rngs(0), kernel_init=drawn, dtype=jnp.bfloat16), uniform(40, 32)
    apply, params = apply_of(model)
    fitted = jax.jit(lambda p: variance_preserving_init(apply, p, x))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(fitted)} == {jnp.dtype("float32")}
    found = outputs_by_path(model, fitted, x)
    assert_unit([output.var() for output in found.values()], UNIT_BFLOAT16)


def test_a_linen_model_with_remat() -> None:
    model, x = LinenModel(), uniform(8, 6, 6, 3)
    params = linen_params(model, x)
    fit = jax.jit(
        lambda p: variance_preserving_init(lambda p, x: model.apply({"params": p}, x), p, x)
    )
    fitted = fit(params)
    outputs = linen_outputs(model, fitted, x)
    assert set(outputs) == {"z_first", "a_second", "m_last"}
    biases = {name: np.asarray(layer["bias"], np.float64) for name, layer in fitted.items()}
    assert_unit([(output - biases[name]).var() for name, output in outputs.items()])


def test_a_kernel_that_is_used_twice_is_fitted_by_its_first_use() -> None:
    params, x = {"kernel": jnp.asarray(layers(1)["layer_0"]["kernel"])}, uniform(20, 64)
    twice = lambda p, x: sigmoid(x @ p["kernel"]) @ p["kernel"]  # noqa: E731
    fitted = variance_preserving_init(twice, params, x)
    assert_unit([(np.asarray(x, np.float64) @ np.asarray(fitted["kernel"], np.float64)).var()])


def test_a_zero_kernel_is_kept() -> None:
    params, x = layers(depth=2), uniform(20, 64)
    params["layer_0"]["kernel"] = jnp.zeros((64, 64))
    fitted = jax.jit(lambda p: variance_preserving_init(mlp, p, x))(params)
    assert not np.any(fitted["layer_0"]["kernel"])
    assert_unit(variances(fitted, x)[1:])


def test_what_a_kernel_makes_of_constants_may_meet_the_inputs() -> None:
    """Positions of a table, and the state that an unrolled recurrent network begins with."""
    positions = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    params = {name: {"kernel": uniform(size, 4)} for name, size in (("x", 3), ("t", 5), ("h", 4))}
    x = uniform(40, 6, 3, seed=2)

    def model(p: Any, x: Any) -> Any:
        x = x @ p["x"]["kernel"] + (positions @ p["t"]["kernel"])[None]
        h = jnp.zeros((40, 4))
        for t in range(6):
            h = jnp.tanh(h @ p["h"]["kernel"] + x[:, t])
        return h

    fitted = variance_preserving_init(model, params, x)
    for name, inputs in (("x", np.asarray(x)), ("t", positions)):
        product = inputs.astype(np.float64) @ np.asarray(fitted[name]["kernel"], np.float64)
        np.testing.assert_allclose(product.var(), 1, rtol=1e-5)
    # Its first use makes zeros of zeros.
    np.testing.assert_array_equal(fitted["h"]["kernel"], params["h"]["kernel"])
