"""`jaxnorm.nnx.BatchNorm` in all its variants against float64 NumPy and Flax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import BatchNorm, Standardization, functionalize
from tests.nnx.batch_norm import (
    BIAS,
    CASES,
    EPSILON,
    MASK,
    MEAN,
    MOMENTUM,
    OPTIONS,
    ROWS,
    SCALE,
    VARIANCE,
    WIDTH,
    Case,
    affine,
    in_numpy,
    normal,
    with_values,
)
from tests.trees import assert_equal, quick_jit

#: Sums over at most 36 values of order one to ten, and a division: some thirty roundings of 6e-8.
FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}
#: The running statistics, which are the sums alone.
SUMS = {"rtol": 2e-6, "atol": 2e-6}
#: bfloat16 activations are rounded to 8 bits once, in and out; the cotangent is the oracle's too.
HALF = {"rtol": 2.0**-7, "atol": 2.0**-7}
EACH = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
FULL = Case()


def trained(layer: Any, x: Any, cotangent: Any, **call: Any) -> dict[str, Any]:
    """Output, gradients by x and the parameters, and the next running statistics, by name."""
    apply, params, state = functionalize(layer)

    def loss(x: Any, params: Any) -> Any:
        output, after = apply(params, state, x, train=True, **call)
        return (output * cotangent).sum(), (output, after)

    (by_x, by_params), (output, after) = quick_jit(jax.grad(loss, (0, 1), has_aux=True))(x, params)
    gradients = {f"by_{name}": value for name, value in by_params.items()}
    return {"output": output, "by_x": by_x} | gradients | dict(after)


def assert_close(
    result: dict[str, Any], expected: Any, tolerance: Any = FLOAT32, rows: Any = ...
) -> None:
    """Compares all values of ``result``; of arrays with rows only ``rows``."""
    for name, value in result.items():
        other = expected[name] if isinstance(expected, dict) else getattr(expected, name)
        pair = (value[rows], other[rows]) if name in ("output", "by_x") else (value, other)
        wide = [np.asarray(a, np.float64) for a in pair]
        near = SUMS if tolerance is FLOAT32 and name in ("mean", "var") else tolerance
        np.testing.assert_allclose(*wide, **near, err_msg=name)


def cotangent(case: Case, dtype: Any = jnp.float32) -> Any:
    return jnp.asarray(normal(3, *case.shape), dtype)


@EACH
def test_outputs_gradients_and_statistics(case: Case) -> None:
    """In a group whose mask is empty the rows are arbitrary."""
    x, back = case.activations(), cotangent(case)
    result = trained(case.layer(), x, back, **case.call())
    assert set(result) == {
        "output",
        "by_x",
        *(["by_scale"] if case.use_scale else []),
        *(["by_bias"] if case.use_bias else []),
        *(["mean"] if case.use_mean else []),
        *(["var"] if case.use_variance else []),
    }
    expected = in_numpy(case, x, back)
    if case.masked and case.groups > 1:
        del result["by_x"], result["by_scale"]
        assert_close(result, expected, rows=MASK)
    else:
        assert_close(result, expected)


@EACH
def test_evaluation_is_the_formula_with_running_statistics(case: Case) -> None:
    """Groups, masks and limits matter in training only."""
    x = case.activations()[:3]  # of a size that the groups do not divide
    scale, bias = affine(case)
    expected = np.float64(x) - (MEAN if case.use_mean else 0)
    expected /= np.sqrt(VARIANCE + EPSILON) if case.use_variance else 1
    layer = case.layer()
    layer.eval()
    for result in (layer(x), jax.vmap(layer)(x), case.layer()(x, use_running_average=True)):
        np.testing.assert_allclose(result, scale * expected + bias, **FLOAT32)


@pytest.mark.kept("1-masked", "1-no scale")
@pytest.mark.parametrize("name", ["full, 1 groups, 4 axes", "no scale", "no bias", "masked"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_it_is_flax_s_over_several_batches(name: str, axis: int) -> None:
    """In training and then in evaluation, with the units on any axis."""
    case = CASES[name]
    options = {"use_scale": case.use_scale, "use_bias": case.use_bias}
    flax = with_values(
        nnx.BatchNorm(
            WIDTH, **OPTIONS, **options, axis=axis, use_fast_variance=False, rngs=nnx.Rngs(0)
        )
    )
    layer, x = case.layer(axis=axis), jnp.moveaxis(case.activations(), -1, axis)
    call = {
        key: jnp.moveaxis(jnp.broadcast_to(mask, case.shape), -1, axis)
        for key, mask in case.call().items()
    }
    for step in range(3):
        np.testing.assert_allclose(layer(x + step, **call), flax(x + step, **call), **FLOAT32)
    layer.eval(), flax.eval()
    np.testing.assert_allclose(layer(x), flax(x), **FLOAT32)


@pytest.mark.kept("float64-4", "bfloat16")
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "float32"])
def test_other_types(groups: int, dtype: str) -> None:
    """bfloat16 throughout; statistics and parameters of float64 with activations of either."""
    case, wide = Case(groups=groups), dtype != "bfloat16"
    with jax.enable_x64(wide):
        layer = case.layer(param_dtype=jnp.float64 if wide else jnp.bfloat16)
        x, back = case.activations(dtype), cotangent(case, dtype)
        result = trained(layer, x, back)
        assert result["output"].dtype == result["by_x"].dtype == dtype
        assert result["mean"].dtype == jnp.result_type(float)
        tolerance = {"bfloat16": HALF, "float32": FLOAT32, "float64": {"rtol": 1e-12}}[dtype]
        if not wide:
            del result["by_scale"], result["by_bias"]  # sums of rounded numbers, also rounded
            rounded = [np.float64(jnp.asarray(a, jnp.bfloat16)) for a in (SCALE, BIAS)]
            result["output"] = (np.float64(result["output"]) - rounded[1]) / rounded[0]
            result["output"] = result["output"] * SCALE + BIAS
            result["by_x"] = np.float64(result["by_x"]) / rounded[0] * SCALE
        assert_close(result, in_numpy(case, x, back), tolerance)
        layer.eval()
        assert layer(x).dtype == dtype


def test_a_mask_of_single_values_counts_per_unit() -> None:
    """The running statistics do not follow a unit whose mask is empty."""
    mask, x = normal(6, ROWS, WIDTH) > [-1, 0, 9], FULL.activations()
    layer = FULL.layer()
    result = layer(x, mask=jnp.asarray(mask))
    for unit in range(WIDTH - 1):
        column = np.float64(x)[mask[:, unit], unit]
        expected = (column - column.mean()) / np.sqrt(column.var() + EPSILON)
        expected = expected * SCALE[unit] + BIAS[unit]
        np.testing.assert_allclose(result[mask[:, unit], unit], expected, **FLOAT32)
        running = MOMENTUM * MEAN[unit] + (1 - MOMENTUM) * column.mean()
        np.testing.assert_allclose(layer.mean[...][unit], running, **FLOAT32)
    np.testing.assert_allclose(layer.mean[...][-1], MEAN[-1], rtol=1e-6)
    np.testing.assert_allclose(layer.var[...][-1], VARIANCE[-1], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("train", [True, False])
def test_masked_values_may_be_infinite_or_nan(bad: float, train: bool) -> None:
    """Their gradients are 0, and no other number changes."""
    mask = normal(6, ROWS, WIDTH) > 0
    x = jnp.where(mask, FULL.activations(), bad)
    apply, params, state = functionalize(FULL.layer())

    def loss(params: Any, x: Any) -> Any:
        output, after = apply(params, state, x, train=train, mask=jnp.asarray(mask))
        return (jnp.where(mask, output, 0) * cotangent(FULL)).sum(), after

    results = quick_jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    (value, after), gradients = results(params, x)
    assert not np.asarray(gradients[1])[~mask].any()
    assert_equal(((value, after), gradients), results(params, jnp.where(mask, x, 0)))


def test_running_statistics_are_no_parameters_and_have_no_gradient() -> None:
    layer, x = FULL.layer(), FULL.activations()
    assert sorted(nnx.to_pure_dict(nnx.state(layer, nnx.BatchStat))) == ["mean", "var"]
    assert sorted(nnx.to_pure_dict(nnx.state(layer, nnx.Param))) == ["bias", "scale"]
    apply, params, state = functionalize(layer)

    def total(x: jax.Array) -> Any:
        after = apply(params, state, x, train=True)[1]
        return after["mean"].sum() + after["var"].sum()

    assert not np.asarray(jax.grad(total)(x)).any()


@pytest.mark.usefixtures("standard_promotion")
def test_the_type_of_the_result_and_the_initializers() -> None:
    options = {"dtype": jnp.bfloat16, "bias_init": nnx.initializers.normal()}
    layer = BatchNorm(WIDTH, **options, rngs=nnx.Rngs(0))
    assert layer(FULL.activations()).dtype == jnp.bfloat16
    assert layer.bias[...].std() > 0
    rngs = nnx.Rngs(0)
    BatchNorm(WIDTH, rngs=rngs)
    assert rngs.params.count[...] == 0  # ones and zeros draw nothing


def test_standardization_is_batch_normalization_without_parameters() -> None:
    layer = Standardization(WIDTH, groups=2, epsilon=EPSILON)
    same = BatchNorm(WIDTH, groups=2, epsilon=EPSILON, use_scale=False, use_bias=False)
    assert not jax.tree.leaves(nnx.state(layer, nnx.Param))
    x = FULL.activations()
    assert_equal(layer(x), same(x))
    layer.eval(), same.eval()
    assert_equal(layer(x), same(x))
