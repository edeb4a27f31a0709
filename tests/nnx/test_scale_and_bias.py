"""`ScaleAndBias` and `Identity` against NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import Identity, ScaleAndBias, functionalize
from tests.draws import float32, normal

#: One product and one sum of values of order one in float32: four roundings.
FLOAT32 = {"rtol": 2.5e-7, "atol": 2.5e-7}
#: Rounded once more to bfloat16's 8 significant bits: half of 2^-7.
BFLOAT16 = {"rtol": 2.0**-8 + 1e-6, "atol": 1e-6}


def layer_and_values(axis: int, param_dtype: Any = jnp.float32) -> tuple[Any, Any, Any]:
    """Layer of 3 features with random parameters, and these in float64."""
    layer = ScaleAndBias(3, axis=axis, param_dtype=param_dtype)
    layer.channel_scale[...] = jnp.asarray(normal(0, 3), param_dtype)
    layer.bias[...] = jnp.asarray(normal(1, 3), param_dtype)
    return layer, np.float64(layer.channel_scale[...]), np.float64(layer.bias[...])


@pytest.mark.parametrize(
    ("axis", "letters"),
    [(-1, "c"), (-1, "nc"), (3, "nhwc"), (1, "nchw"), (-3, "nchw"), (0, "cnhw")],
)
def test_any_axis_of_any_rank(axis: int, letters: str) -> None:
    layer, scale, bias = layer_and_values(axis)
    x = normal(2, *({"n": 2, "h": 4, "w": 5, "c": 3}[letter] for letter in letters))
    expected = np.einsum(f"{letters},c->{letters}", x, scale)
    expected += np.einsum(f"{letters},c->{letters}", np.ones_like(x), bias)
    np.testing.assert_allclose(layer(jnp.asarray(x, jnp.float32)), expected, **FLOAT32)


@pytest.mark.parametrize("param_dtype", [jnp.float32, jnp.bfloat16])
def test_the_result_has_the_type_of_the_input_and_is_rounded_once(param_dtype: Any) -> None:
    layer, scale, bias = layer_and_values(-1, param_dtype)
    x = jnp.asarray(normal(2, 50, 3), jnp.bfloat16)
    y = layer(x)
    assert y.dtype == jnp.bfloat16
    expected = np.float64(x) * scale + bias
    np.testing.assert_allclose(np.float64(y), expected, **BFLOAT16)


@pytest.mark.parametrize("layer", [ScaleAndBias(3), Identity()])
def test_arguments_of_the_replaced_layer_are_accepted(layer: Any) -> None:
    x = float32(normal(2, 4, 3))
    for y in (layer(x, True), layer(x, use_running_average=False), layer(x, mask=x > 0)):
        np.testing.assert_array_equal(y, x)


def test_starts_as_identity_with_two_parameters_and_no_state() -> None:
    layer = ScaleAndBias(3, param_dtype=jnp.bfloat16)
    params = nnx.to_pure_dict(nnx.state(layer, nnx.Param))
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in params.items()} == {
        "channel_scale": ((3,), jnp.bfloat16),
        "bias": ((3,), jnp.bfloat16),
    }
    assert not jax.tree.leaves(nnx.state(layer, nnx.Not(nnx.Param)))
    assert not jax.tree.leaves(nnx.state(Identity()))


def noisy_layer(**options: Any) -> ScaleAndBias:
    layer = ScaleAndBias(3, stddev=0.5, rngs=nnx.Rngs(1), **options)
    layer.channel_scale[...] = jnp.array([1.0, -2.0, 0.5])
    layer.bias[...] = jnp.array([1.0, 2.0, 3.0])
    return layer


def test_noise_is_drawn_per_sample_and_feature() -> None:
    """y = (1 + n) gamma x + beta, where n is normal and equal at all positions."""
    x = jnp.ones((4000, 2, 3)) * jnp.array([1.0, 3.0])[None, :, None]
    layer = noisy_layer()
    n = (layer(x) - layer.bias[...][None, None]) / (x * layer.channel_scale[...][None, None]) - 1
    np.testing.assert_allclose(n[:, 0], n[:, 1], atol=1e-5)
    draws = np.asarray(n[:, 0], np.float64) / 0.5
    # Four standard errors of 12,000 independent draws.
    assert abs(draws.mean()) < 4 / np.sqrt(draws.size)
    assert abs(draws.std() - 1) < 4 / np.sqrt(2 * draws.size)
    assert abs(np.corrcoef(draws.T)[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(4000)
    again = layer(x)
    assert not np.allclose(again, layer(x))


def test_there_is_no_noise_in_evaluation() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    expected = x * jnp.array([[1.0, -2.0, 0.5]]) + jnp.array([[1.0, 2.0, 3.0]])
    layer = noisy_layer()
    layer.eval()
    np.testing.assert_allclose(layer(x), expected, rtol=1e-6)
    np.testing.assert_allclose(noisy_layer(deterministic=True)(x), expected, rtol=1e-6)
    functional = functionalize(noisy_layer())
    quiet, _ = functional.apply(functional.params, functional.state, x, train=False)
    loud, state = functional.apply(functional.params, functional.state, x, train=True)
    np.testing.assert_allclose(quiet, expected, rtol=1e-6)
    second, _ = functional.apply(functional.params, state, x, train=True)
    assert not np.allclose(loud, quiet)
    assert not np.allclose(loud, second)
