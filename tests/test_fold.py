"""`jaxnorm.fold_into_kernel` against float64 NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import fold_into_kernel
from jaxnorm.nnx import BatchNorm
from tests.draws import normal

#: Five float32 operations per entry, on values of order one and scales up to 1/sqrt(0.1).
FLOAT32 = {"rtol": 2e-6, "atol": 2e-6}
#: Sums of at most 18 weights, each with the error of `FLOAT32`.
SUMS = {"rtol": 2e-5, "atol": 2e-5}
#: One rounding to bfloat16 of a result that was computed in float32.
BFLOAT16 = {"rtol": 2.0**-8 + 1e-6, "atol": 1e-6}
EPSILON = 1e-3

#: Shape, fan-in axes, and einsum of the layer, by kernel.
KERNELS = {
    "dense": ((5, 4), (-2,), "bi,io->bo"),
    "dense_out_in": ((4, 5), (-1,), "bi,oi->bo"),
    "convolution": ((3, 3, 2, 4), (-4, -3, -2), "bxyi,xyio->bo"),
    "attention_query": ((6, 2, 3), (-3,), "bi,ihd->bhd"),
    "attention_out": ((2, 3, 5), (0, 1), "bhd,hdo->bo"),
}
ALL = (True, True, True)


def float32(x: Any) -> Any:
    return jnp.asarray(x, jnp.float32)


def setting(case: str, parts: tuple[bool, bool, bool] = ALL, **changes: Any) -> dict[str, Any]:
    """Arguments of the function in float64; ``parts`` are the bias, the scale and the offset."""
    shape, axes, equation = KERNELS[case]
    kernel, output = equation.split("->")[0].split(",")[1], equation.split("->")[1]
    units = tuple(shape[kernel.index(letter)] for letter in output[1:])
    values = {
        name: normal(seed, *units) if used else None
        for seed, name, used in zip((3, 4, 5), ("bias", "scale", "offset"), parts, strict=True)
    }
    variance = np.random.default_rng(2).uniform(0.1, 2, size=units)
    statistics = {"mean": normal(1, *units), "variance": variance}
    kernels = {"kernel": normal(0, *shape), "fan_in_axes": axes, "epsilon": EPSILON}
    return kernels | statistics | values | changes


def folded(arguments: dict[str, Any], **changes: Any) -> Any:
    arrays = {name: float32(x) for name, x in arguments.items() if isinstance(x, np.ndarray)}
    return fold_into_kernel(**(arguments | arrays | changes))


def closed_form(a: dict[str, Any]) -> tuple[Any, Any]:
    """(a w, a (b - mu) + beta) with units in the last axis."""
    factor = a["scale"] / np.sqrt(a["variance"] + a["epsilon"])
    return a["kernel"] * factor, factor * (a["bias"] - a["mean"]) + a["offset"]


def assert_folds(actual: Any, arguments: dict[str, Any], tolerance: Any = FLOAT32) -> None:
    for value, expected in zip(actual, closed_form(arguments), strict=True):
        np.testing.assert_allclose(np.float64(value), expected, **tolerance)


@pytest.mark.kept("attention_query", "dense_out_in", "convolution")
@pytest.mark.parametrize("case", KERNELS)
@pytest.mark.parametrize(
    "parts", [ALL, (False, True, True), (True, False, True), (True, True, False), (False,) * 3]
)
def test_equals_the_layer_followed_by_the_normalization(case: str, parts: Any) -> None:
    shape, _, equation = KERNELS[case]
    a = setting(case, parts)
    inputs, kernel = equation.split("->")[0].split(",")
    sizes = dict(zip(kernel, shape, strict=True)) | {"b": 3}
    x = normal(6, *(sizes[letter] for letter in inputs))
    bias, scale, offset = (a[name] for name in ("bias", "scale", "offset"))
    y = np.einsum(equation, x, a["kernel"]) + (0 if bias is None else bias)
    y = (y - a["mean"]) / np.sqrt(a["variance"] + a["epsilon"])
    expected = y * (1 if scale is None else scale) + (0 if offset is None else offset)
    result = folded(a)
    actual = np.einsum(equation, x, np.float64(result.kernel)) + np.float64(result.bias)
    np.testing.assert_allclose(actual, expected, **SUMS)


def test_bfloat16_kernel_is_rounded_once() -> None:
    arguments = setting("dense")
    stored = jnp.asarray(arguments["kernel"], jnp.bfloat16)
    result = folded(arguments, kernel=stored)
    assert (result.kernel.dtype, result.bias.dtype) == (jnp.bfloat16, jnp.bfloat16)
    assert_folds(result, arguments | {"kernel": np.float64(stored)}, BFLOAT16)


def test_the_default_epsilon_is_that_of_flax() -> None:
    arguments = setting("dense", variance=np.full(4, 1e-5), epsilon=1e-5)
    without_epsilon = {name: x for name, x in arguments.items() if name != "epsilon"}
    assert_folds(folded(without_epsilon), arguments)


def test_constant_channel_without_epsilon_is_not_divided() -> None:
    """The result equals `jaxnorm.nnx.BatchNorm` in evaluation; NaN stays NaN."""
    variance = np.array([0.0, 0.25, np.nan, 4.0])
    arguments = setting("dense", variance=variance, epsilon=0.0)
    kernel, bias = folded(arguments)
    expected = arguments | {"variance": np.where(variance == 0, 1, variance)}
    assert_folds((kernel, bias), expected)
    layer = BatchNorm(4, epsilon=0.0, use_running_average=True)
    names = {"mean": "mean", "var": "variance", "scale": "scale", "bias": "offset"}
    for field, name in names.items():
        getattr(layer, field)[...] = float32(arguments[name])
    x = float32(normal(6, 3, 5))
    evaluated = layer(x @ float32(arguments["kernel"]) + float32(arguments["bias"])[None])
    np.testing.assert_allclose(x @ kernel + bias[None], evaluated, **SUMS)


@pytest.mark.parametrize(
    "wide", [["bias", "mean"], ["bias", "mean", "variance"], ["variance"], ["scale"], ["offset"]]
)
def test_float64_statistics_are_used_in_float64(wide: Any) -> None:
    """The difference b - mu of numbers near 1e9 is lost in float32."""
    arguments = setting("dense")
    if "mean" in wide:
        arguments |= {"mean": 1e9 + np.arange(4.0), "bias": 1e9 + normal(1, 4)}
    with jax.enable_x64(True):
        result = folded(arguments, **{name: jnp.asarray(arguments[name]) for name in wide})
        assert result.kernel.dtype == result.bias.dtype == jnp.float32
        assert_folds(result, arguments)


def test_a_result_that_overflows_float16_is_refused() -> None:
    """500 / sqrt(1e-5) is 1.6e5, and float16 ends at 65504; NaN and infinity are kept."""
    arguments = setting("dense", variance=np.zeros(4), epsilon=1e-5)
    kernel = jnp.full((5, 4), 500.0, jnp.float16)
    with pytest.raises(ValueError, match=r"kernel.*float16"):
        folded(arguments, kernel=kernel)
    arguments |= {"variance": np.array([np.nan, 4.0, 4.0, 4.0])}
    assert np.isnan(folded(arguments, kernel=kernel).kernel).any(0).tolist() == [True, *[False] * 3]


def test_statistics_with_axes_of_size_1_are_those_without() -> None:
    """Haiku keeps them as (1, 1, 1, channels)."""
    arguments = setting("dense")
    names = ("mean", "variance", "scale", "offset")
    wider = {name: jnp.asarray(arguments[name])[None, None] for name in names}
    jax.tree.map(np.testing.assert_array_equal, folded(arguments, **wider), folded(arguments))


def test_statistics_of_another_layer_are_refused() -> None:
    with pytest.raises(ValueError, match=r"variance has the shape \(3,\).*units the shape \(4,\)"):
        folded(setting("dense"), variance=jnp.ones(3))
