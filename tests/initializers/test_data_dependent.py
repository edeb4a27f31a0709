"""After `data_dependent_init` every unit's w'x + b has mean 0 and variance 1 over the samples."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    WeightNormalized,
    data_dependent_init,
    effective,
    layout_from_rules,
    reparametrize,
    torch_layout,
)
from jaxnorm.nnx import layout
from tests.initializers.models import (
    LinenModel,
    apply_of,
    attention,
    convolutions,
    layers,
    linen_outputs,
    linen_params,
    mlp,
    outputs_by_path,
    preactivations,
    sigmoids,
    uniform,
)

#: Eight float32 layers, each of which divides by the deviation of what the last one made.
MOMENTS = {"rtol": 0.0, "atol": 1e-4}
#: The same with 8 significant bits.
MOMENTS_BFLOAT16 = {"rtol": 0.0, "atol": 0.1}


def assert_standard(outputs: Any, axes: Any = 0, tolerance: dict[str, float] = MOMENTS) -> None:
    outputs = np.asarray(outputs, np.float64)
    np.testing.assert_allclose(outputs.mean(axes), 0, **tolerance)
    np.testing.assert_allclose(outputs.var(axes), 1, **tolerance)


def test_layers_with_old_biases_against_a_numpy_forward_pass() -> None:
    params, x = layers(depth=8), uniform(200, 64)
    fitted = jax.jit(lambda p: data_dependent_init(mlp, p, x))(params)
    for (_, old), (_, new) in zip(
        preactivations(params, x), preactivations(fitted, x), strict=True
    ):
        assert np.abs(old.mean(0)).max() > 1
        assert_standard(new)
    for name, layer in params.items():
        ratio = np.asarray(fitted[name]["kernel"]) / np.asarray(layer["kernel"])
        np.testing.assert_allclose(ratio, ratio[:1].repeat(64, 0), rtol=1e-6)


def test_half_precision() -> None:
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), layers(depth=2))
    x = uniform(200, 64).astype(jnp.bfloat16)
    fitted = jax.jit(lambda p: data_dependent_init(mlp, p, x))(params)
    for _, output in preactivations(fitted, x):
        assert_standard(output, 0, MOMENTS_BFLOAT16)


@pytest.mark.parametrize("kind", [WeightNormalized, CenteredWeightNormalized, LinearlyConstrained])
def test_reparametrized_kernels(kind: type) -> None:
    raw, x = reparametrize(layers(depth=4), kind), uniform(200, 64)
    fitted = jax.jit(lambda r: data_dependent_init(mlp, r, x))(raw)
    assert jax.tree.structure(fitted) == jax.tree.structure(raw)
    for _, output in preactivations(effective(fitted), x):
        assert_standard(output)


def test_a_layer_without_a_bias_only_gets_its_variance() -> None:
    model, x = sigmoids(), uniform(40, 32)
    apply, params = apply_of(model)
    fitted = jax.jit(lambda p: data_dependent_init(apply, p, x))(params)
    found = outputs_by_path(model, fitted, x)
    for name in ("zeta", "mid"):
        assert_standard(found[name] + np.asarray(fitted[name]["bias"], np.float64))
    assert set(fitted["alpha"]) == {"kernel"}
    np.testing.assert_allclose(found["alpha"].var(0), 1, **MOMENTS)
    assert np.abs(found["alpha"].mean(0)).max() > 0.1


def test_a_channel_of_a_convolution_is_standard_over_samples_and_positions() -> None:
    model, x = convolutions(), uniform(8, 6, 6, 3)
    apply, params = apply_of(model)
    fitted = jax.jit(lambda p: data_dependent_init(apply, p, x))(params)
    for name, output in outputs_by_path(model, fitted, x).items():
        axes = tuple(range(output.ndim - 1))
        assert_standard(output + np.asarray(fitted[name]["bias"], np.float64), axes)


def test_a_unit_of_an_attention_projection_is_a_feature_of_a_head() -> None:
    model, x = attention(), uniform(16, 5, 8)
    apply, params = apply_of(model)
    fit = jax.jit(lambda p: data_dependent_init(apply, p, x, layout=layout(model)))
    fitted = fit(params)
    for name, output in outputs_by_path(model, fitted, x).items():
        assert_standard(output + np.asarray(fitted[name]["bias"], np.float64), (0, 1))


def test_a_linen_model_with_remat() -> None:
    model, x = LinenModel(), uniform(8, 6, 6, 3)
    params = linen_params(model, x)
    apply = lambda p, x: model.apply({"params": p}, x)  # noqa: E731
    fitted = jax.jit(lambda p: data_dependent_init(apply, p, x))(params)
    for output in linen_outputs(model, fitted, x).values():
        assert_standard(output, tuple(range(output.ndim - 1)))


def test_a_dead_unit_keeps_its_weights_and_the_others_are_fitted() -> None:
    params, x = layers(depth=2), uniform(50, 64)
    params["layer_0"]["kernel"] = params["layer_0"]["kernel"].at[:, 3].set(0.0)
    fitted = jax.jit(lambda p: data_dependent_init(mlp, p, x))(params)
    assert not np.any(fitted["layer_0"]["kernel"][:, 3])
    (_, first), (_, second) = preactivations(fitted, x)
    assert_standard(np.delete(first, 3, axis=1))
    assert_standard(second)
    assert not np.any(first[:, 3])


def test_a_kernel_that_is_used_twice_is_fitted_to_its_first_use() -> None:
    """Its second use gets the same weights and bias, whatever they make of its input."""
    layer, x = layers(depth=1)["layer_0"], uniform(50, 64)

    def twice(p: Any, x: Any) -> Any:
        x = jnp.tanh(x @ p["shared"]["kernel"] + p["shared"]["bias"][None])
        x = x @ p["shared"]["kernel"] + p["shared"]["bias"][None]
        return x @ p["head"]["kernel"]

    params = {"shared": layer, "head": {"kernel": uniform(64, 3, seed=5)}}
    fitted = jax.jit(lambda p: data_dependent_init(twice, p, x))(params)
    kernel, bias = (np.asarray(fitted["shared"][name], np.float64) for name in ("kernel", "bias"))
    first = np.asarray(x, np.float64) @ kernel + bias
    assert_standard(first)
    second = np.tanh(first) @ kernel + bias
    assert np.abs(second.var(0) - 1).max() > 0.5
    np.testing.assert_allclose((second @ fitted["head"]["kernel"]).var(0), 1, **MOMENTS)


class Convolved(eqx.Module):
    """Equinox's convolutions, whose biases are (out, 1, 1) and (out, 1); of one sample."""

    wide: eqx.nn.Conv2d
    grouped: eqx.nn.Conv2d
    narrow: eqx.nn.Conv1d
    head: eqx.nn.Linear

    def __init__(self) -> None:
        keys = jax.random.split(jax.random.key(0), 4)
        self.wide = eqx.nn.Conv2d(3, 8, 3, key=keys[0])
        self.grouped = eqx.nn.Conv2d(8, 4, 3, groups=2, key=keys[1])
        self.narrow = eqx.nn.Conv1d(4, 6, 2, key=keys[2])
        self.head = eqx.nn.Linear(6, 5, key=keys[3])

    def __call__(self, x: jax.Array) -> tuple[jax.Array, ...]:
        """The pre-activations of every layer."""
        wide = self.wide(x)
        grouped = self.grouped(jnp.tanh(wide))
        narrow = self.narrow(jnp.tanh(grouped).reshape(4, -1))
        return wide, grouped, narrow, self.head(jnp.tanh(narrow).mean(-1))


def test_equinox_convolutions() -> None:
    params, static = eqx.partition(Convolved(), eqx.is_array)
    # Biases of size one, as the model must not add the old ones to the new.
    params = jax.tree.map(lambda leaf: leaf + 1, params)
    x = uniform(16, 3, 6, 6)

    def apply(p: Any, x: Any) -> Any:
        return jax.vmap(eqx.combine(p, static))(x)

    fitted = jax.jit(lambda p: data_dependent_init(apply, p, x, layout=torch_layout))(params)
    assert jax.tree.map(jnp.shape, fitted) == jax.tree.map(jnp.shape, params)
    for output in apply(fitted, x):
        assert_standard(output, (0, *range(2, output.ndim)))


def test_the_bias_of_a_haiku_layer_has_a_short_name() -> None:
    """Beside a w; another leaf of that name beside another kernel stays as it is."""
    params = {"linear": {"w": uniform(5, 4), "b": jnp.ones(4)}}
    by_w = layout_from_rules([("w$", -2)])
    apply = lambda p, x: x @ p["linear"]["w"] + p["linear"]["b"][None]  # noqa: E731
    x = uniform(60, 5) + 3
    assert_standard(apply(data_dependent_init(apply, params, x, layout=by_w), x))
    other = {"kernel": params["linear"]["w"], "b": jnp.ones(4)}
    fitted = data_dependent_init(lambda p, x: x @ p["kernel"], other, x)
    np.testing.assert_array_equal(fitted["b"], other["b"])
