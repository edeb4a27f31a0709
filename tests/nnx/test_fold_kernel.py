"""`jaxnorm.fold_batch_norm`, the pure function, against float64 NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import fold_batch_norm
from jaxnorm.nnx import BatchNorm

#: Five float32 operations an entry, on values of order one and scales up to 1/sqrt(0.1).
FLOAT32 = {"rtol": 2e-6, "atol": 2e-6}
#: One rounding to bfloat16 of a result that was computed in float32.
BFLOAT16 = {"rtol": 2.0**-8 + 1e-6, "atol": 1e-6}
EPSILON = 1e-3

#: For each kernel: its shape, its fan-in axes, and the layer as einsum (inputs, kernel, output).
KERNELS = {
    "dense": ((5, 4), (-2,), "bi,io->bo"),
    "dense_out_in": ((4, 5), (-1,), "bi,oi->bo"),
    "convolution": ((3, 3, 2, 4), (-4, -3, -2), "bxyi,xyio->bo"),
    "attention_query": ((6, 2, 3), (-3,), "bi,ihd->bhd"),
    "attention_out": ((2, 3, 5), (0, 1), "bhd,hdo->bo"),
}


def drawn(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def float32(x: Any) -> Any:
    return None if x is None else jnp.asarray(x, jnp.float32)


def setting(case: str, with_bias: bool, with_scale: bool, with_offset: bool) -> dict[str, Any]:
    """The arguments of the function, in float64."""
    shape, axes, equation = KERNELS[case]
    kernel, output = equation.split("->")[0].split(",")[1], equation.split("->")[1]
    units = tuple(shape[kernel.index(letter)] for letter in output[1:])
    return {
        "kernel": drawn(0, *shape),
        "bias": drawn(1, *units) if with_bias else None,
        "mean": drawn(2, *units),
        "variance": np.random.default_rng(3).uniform(0.1, 2, size=units),
        "scale": drawn(4, *units) if with_scale else None,
        "offset": drawn(5, *units) if with_offset else None,
        "fan_in_axes": axes,
        "epsilon": EPSILON,
    }


def folded(arguments: dict[str, Any], **changes: Any) -> Any:
    arrays = {name: float32(x) for name, x in arguments.items() if isinstance(x, np.ndarray)}
    return fold_batch_norm(**(arguments | arrays | changes))


def normalized_layer(equation: str, x: Any, a: dict[str, Any]) -> Any:
    """The layer and then the normalization, as two steps."""
    y = np.einsum(equation, x, a["kernel"]) + (0 if a["bias"] is None else a["bias"])
    y = (y - a["mean"]) / np.sqrt(a["variance"] + a["epsilon"])
    return y * (1 if a["scale"] is None else a["scale"]) + (
        0 if a["offset"] is None else a["offset"]
    )


@pytest.mark.parametrize("case", KERNELS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("with_scale", [True, False])
@pytest.mark.parametrize("with_offset", [True, False])
def test_equals_the_layer_and_then_the_normalization(
    case: str, with_bias: bool, with_scale: bool, with_offset: bool
) -> None:
    shape, _, equation = KERNELS[case]
    arguments = setting(case, with_bias, with_scale, with_offset)
    inputs, kernel = equation.split("->")[0].split(",")
    sizes = dict(zip(kernel, shape, strict=True)) | {"b": 3}
    x = drawn(6, *(sizes[letter] for letter in inputs))
    result = folded(arguments)
    got = np.einsum(equation, x, np.float64(result.kernel)) + np.float64(result.bias)
    wanted = normalized_layer(equation, x, arguments)
    # 18 weights at most are summed.
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def closed_form(a: dict[str, Any]) -> tuple[Any, Any]:
    """(a w, a (b - mu) + beta) with units in the last axis."""
    factor = a["scale"] / np.sqrt(a["variance"] + a["epsilon"])
    return a["kernel"] * factor, factor * (a["bias"] - a["mean"]) + a["offset"]


def test_kernel_and_bias_entry_by_entry() -> None:
    arguments = setting("convolution", True, True, True)
    kernel, bias = folded(arguments)
    wanted = closed_form(arguments)
    np.testing.assert_allclose(kernel, wanted[0], **FLOAT32)
    np.testing.assert_allclose(bias, wanted[1], **FLOAT32)


def test_bfloat16_kernel_is_rounded_once() -> None:
    arguments = setting("dense", True, True, True)
    stored = jnp.asarray(arguments["kernel"], jnp.bfloat16)
    result = folded(arguments, kernel=stored)
    assert (result.kernel.dtype, result.bias.dtype) == (jnp.bfloat16, jnp.bfloat16)
    wanted = closed_form(arguments | {"kernel": np.float64(stored)})
    np.testing.assert_allclose(np.float64(result.kernel), wanted[0], **BFLOAT16)
    np.testing.assert_allclose(np.float64(result.bias), wanted[1], **BFLOAT16)


def test_default_epsilon_is_flax_s() -> None:
    arguments = setting("dense", True, True, True) | {"variance": np.full(4, 1e-5)}
    del arguments["epsilon"]
    wanted = closed_form(arguments | {"epsilon": 1e-5})
    # The scale is up to 400.
    np.testing.assert_allclose(folded(arguments).kernel, wanted[0], rtol=2e-6)


def test_constant_channel_is_finite() -> None:
    arguments = setting("dense", True, True, True) | {"variance": np.zeros(4)}
    kernel, bias = folded(arguments)
    np.testing.assert_allclose(kernel, closed_form(arguments)[0], rtol=2e-6)
    assert np.isfinite(bias).all()


def test_constant_channel_without_epsilon_is_not_divided() -> None:
    """As `jaxnorm.nnx.BatchNorm` evaluates it; the other channels are divided, and NaN is seen."""
    variance = np.array([0.0, 0.25, np.nan, 4.0])
    arguments = setting("dense", True, True, True) | {"variance": variance, "epsilon": 0.0}
    kernel, bias = folded(arguments)
    wanted = closed_form(arguments | {"variance": np.where(variance == 0, 1, variance)})
    np.testing.assert_allclose(kernel, wanted[0], **FLOAT32)
    np.testing.assert_allclose(bias, wanted[1], **FLOAT32)
    layer = BatchNorm(4, epsilon=0.0, use_running_average=True)
    layer.mean[...], layer.var[...] = float32(arguments["mean"]), float32(variance)
    layer.scale[...], layer.bias[...] = float32(arguments["scale"]), float32(arguments["offset"])
    x = float32(drawn(6, 3, 5))
    evaluated = layer(x @ float32(arguments["kernel"]) + float32(arguments["bias"])[None])
    np.testing.assert_allclose(x @ kernel + bias[None], evaluated, rtol=2e-5, atol=2e-5)


def test_float64_statistics_are_not_narrowed_on_their_way_into_a_float32_kernel() -> None:
    """b - mu loses everything in float32, where mu is 1e9 and b is not far from it."""
    arguments = setting("dense", True, True, True) | {"mean": 1e9 + np.arange(4.0)}
    arguments["bias"] = 1e9 + drawn(1, 4)
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(x) for name, x in arguments.items() if isinstance(x, np.ndarray)}
        for wide_ones in ("bias", "mean", "variance"), tuple(wide), ("bias", "mean"):
            narrow = set(wide) - set(wide_ones) | {"kernel"}
            given = wide | {name: float32(arguments[name]) for name in narrow}
            kernel, bias = fold_batch_norm(**(arguments | given))
            wanted = closed_form(arguments)
            assert kernel.dtype == bias.dtype == jnp.float32
            np.testing.assert_allclose(kernel, wanted[0], **FLOAT32)
            np.testing.assert_allclose(bias, wanted[1], **FLOAT32)


@pytest.mark.parametrize("name", ["bias", "mean", "variance", "scale", "offset"])
def test_any_part_may_be_wider(name: str) -> None:
    arguments = setting("dense", True, True, True)
    with jax.enable_x64(True):
        kernel, bias = folded(arguments, **{name: jnp.asarray(arguments[name])})
    wanted = closed_form(arguments)
    np.testing.assert_allclose(kernel, wanted[0], **FLOAT32)
    np.testing.assert_allclose(bias, wanted[1], **FLOAT32)


def test_fan_in_axes_out_of_range() -> None:
    arguments = setting("dense", True, True, True)
    with pytest.raises(ValueError, match=r"the kernel has 2 axes.*given as \(-3,\).*from -2 to -1"):
        folded(arguments, fan_in_axes=-3)
