"""`jaxnorm.nnx.BatchNorm` in all its variants against float64 NumPy, and against Flax's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import BatchNorm, functionalize
from tests.nnx.batch_norm_oracle import (
    FULL,
    MEAN_ONLY,
    VARIANCE_ONLY,
    Kind,
    batch_norm,
    group_moments,
)
from tests.trees import quick_jit

WIDTH, EPSILON, MOMENTUM = 5, 1e-3, 0.8
ROWS, IMAGES = (24, WIDTH), (4, 3, 3, WIDTH)
#: Sums over at most 36 values of order one to ten, and a division: some thirty roundings of 6e-8.
FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}
KINDS = pytest.mark.parametrize(
    "kind", [FULL, MEAN_ONLY, VARIANCE_ONLY], ids=["full", "mean", "variance"]
)


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


def activations(shape: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Units of different means and spreads, which drift along the batch: groups differ."""
    drift = np.linspace(0, 3, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    units = np.linspace(0.5, 2, WIDTH)
    return jnp.asarray((normal(0, *shape) + drift) * units + 2 * units, dtype)


def layer(kind: Kind = FULL, **options: Any) -> BatchNorm:
    """With gamma and beta that are not those of a new one."""
    made = BatchNorm(WIDTH, **kind._asdict(), epsilon=EPSILON, momentum=MOMENTUM, **options)
    for parameter, values in ((made.scale, normal(1, WIDTH)), (made.bias, normal(2, WIDTH))):
        if parameter is not None:
            parameter[...] = jnp.asarray(values, parameter.dtype)
    return made


def trained_on(made: BatchNorm, x: jax.Array) -> tuple[Any, Any, Any, Any]:
    """The output, the gradients by x and by the parameters, the new state; and the cotangent."""
    apply, params, state = functionalize(made)
    cotangent = jnp.asarray(normal(3, *x.shape), x.dtype)

    def loss(x: jax.Array, params: Any) -> Any:
        output, after = apply(params, state, x, train=True)
        return (cotangent * output).sum(), (output, after)

    run = quick_jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, (output, after)), gradients = run(x, params)
    return output, gradients, after, cotangent


def parameters(made: BatchNorm) -> tuple[Any, Any]:
    scale = np.ones(WIDTH) if made.scale is None else made.scale[...]
    return scale, np.zeros(WIDTH) if made.bias is None else made.bias[...]


def assert_like_numpy(made: BatchNorm, x: jax.Array, kind: Kind, **tolerance: float) -> None:
    output, (by_x, by_params), after, cotangent = trained_on(made, x)
    wanted = batch_norm(x, *parameters(made), cotangent, kind, made.groups, EPSILON)
    assert output.dtype == by_x.dtype == x.dtype
    got = {"output": output, "by_x": by_x}
    got |= {f"by_{name}": value for name, value in by_params.items()}
    for name, value in got.items():
        np.testing.assert_allclose(
            np.asarray(value, np.float64), getattr(wanted, name), **tolerance, err_msg=name
        )
    assert_follows(after, x, kind, made.groups)


def assert_follows(after: Any, x: jax.Array, kind: Kind, groups: int) -> None:
    """From mean 0 and variance 1, in float32 whatever the type of the activations."""
    mean, variance = group_moments(x, groups)
    wanted = {"mean": (1 - MOMENTUM) * mean, "var": MOMENTUM + (1 - MOMENTUM) * variance}
    kept = {"mean": kind.use_mean, "var": kind.use_variance}
    assert after.keys() == {name for name, used in kept.items() if used}
    for name, value in after.items():
        assert value.dtype == jnp.result_type(float)
        np.testing.assert_allclose(value, wanted[name], rtol=2e-6, atol=2e-6)


@KINDS
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("shape", [ROWS, IMAGES], ids=["rows", "images"])
def test_outputs_gradients_and_statistics(kind: Kind, groups: int, shape: Any) -> None:
    assert_like_numpy(layer(kind, groups=groups), activations(shape), kind, **FLOAT32)


@pytest.mark.parametrize("uses", [(True, False), (False, True), (False, False)])
def test_without_scale_or_bias(uses: tuple[bool, bool]) -> None:
    made = layer(use_scale=uses[0], use_bias=uses[1])
    assert (made.scale is None, made.bias is None) == (not uses[0], not uses[1])
    assert_like_numpy(made, activations(ROWS), FULL, **FLOAT32)


@pytest.mark.parametrize("groups", [1, 4])
def test_bfloat16_activations(groups: int) -> None:
    """Rounded to 8 bits once, in and out: 2^-9 of values up to 10; sums over rows for parameters.

    The cotangent's own rounding is the oracle's too.
    """
    made = layer(groups=groups, param_dtype=jnp.bfloat16)
    assert made.scale is not None
    assert made.scale.dtype == jnp.bfloat16
    assert_like_numpy(made, activations(ROWS, jnp.bfloat16), FULL, rtol=2.0**-7, atol=2.0**-7)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_in_double_precision(dtype: str) -> None:
    """Statistics and parameters of float64 with activations of either type."""
    with jax.enable_x64(True):
        made, x = layer(groups=4, param_dtype=jnp.float64), activations(ROWS, jnp.dtype(dtype))
        tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == "float64" else FLOAT32
        assert_like_numpy(made, x, FULL, **tolerance)
        made.eval()
        assert made(x).dtype == x.dtype


def test_bfloat16_of_large_offset() -> None:
    """Near 1e4 bfloat16 numbers are 64 apart; the float32 mean of them is right to 1e-3."""
    x = jnp.asarray(1e4 + 500 * normal(4, 100, WIDTH), jnp.bfloat16)
    got = BatchNorm(WIDTH)(x)
    wide = np.asarray(x, np.float64)
    wanted = (wide - wide.mean(0)) / wide.std(0)
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=2.0**-8, atol=1e-5)


@pytest.mark.parametrize("shape", [ROWS, IMAGES], ids=["rows", "images"])
def test_flax_over_several_batches(shape: Any) -> None:
    """The same outputs, in training and then in evaluation, and the same running statistics."""
    ours, others = (
        layer(),
        nnx.BatchNorm(
            WIDTH, momentum=MOMENTUM, epsilon=EPSILON, use_fast_variance=False, rngs=nnx.Rngs(0)
        ),
    )
    others.scale[...], others.bias[...] = parameters(ours)
    for step in range(3):
        x = activations(shape) + step
        np.testing.assert_allclose(ours(x), others(x), **FLOAT32)
    for name in ("mean", "var"):
        np.testing.assert_allclose(getattr(ours, name)[...], getattr(others, name)[...], **FLOAT32)
    ours.eval(), others.eval()
    np.testing.assert_allclose(ours(x), others(x), **FLOAT32)


@KINDS
def test_evaluation_is_the_formula_with_running_statistics(kind: Kind) -> None:
    """Whatever the groups: they are a matter of training."""
    made, x = layer(kind, groups=4), activations(IMAGES)
    mean, variance = normal(5, WIDTH), np.exp(normal(6, WIDTH))
    for kept, values in ((made.mean, mean), (made.var, variance)):
        if kept is not None:
            kept[...] = jnp.asarray(values, jnp.float32)
    normalized = np.asarray(x, np.float64) - (mean if kind.use_mean else 0)
    normalized /= np.sqrt(variance + EPSILON) if kind.use_variance else 1
    scale, bias = (np.asarray(p, np.float64) for p in parameters(made))
    got = made(x[:3], use_running_average=True)  # of a size that the groups do not divide
    np.testing.assert_allclose(got, (scale * normalized + bias)[:3], **FLOAT32)


def test_a_row_alone_under_vmap() -> None:
    made, x = layer(use_running_average=True), activations(ROWS)
    np.testing.assert_allclose(jax.vmap(made)(x), made(x), **FLOAT32)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"use_mean=False and use_variance=False.*nothing"):
        BatchNorm(3, use_mean=False, use_variance=False)
    for width in (1, 4):
        with pytest.raises(ValueError, match=r"\(6, 3\); wanted \(batch, \.\.\., [14]\)"):
            BatchNorm(width)(jnp.ones((6, 3)))
    with pytest.raises(ValueError, match="groups=4 does not divide the 6 samples"):
        BatchNorm(3, groups=4)(jnp.ones((6, 3)))
    with pytest.raises(ValueError, match="groups=8 does not divide the 6 samples"):
        BatchNorm(3, groups=8)(jnp.ones((6, 3)))
    with pytest.raises(ValueError, match="groups=2 and axis_name='data'; wanted one of them"):
        BatchNorm(3, groups=2, axis_name="data")(jnp.ones((6, 3)))
