"""Fitted kernels that a model rounds, and kernels of narrow types."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxnorm as jn
from tests.trace.forms import draw

X = 0.01 * draw(128, 32)
PARAMS = {
    "a": {"kernel": 0.02 * draw(32, 24), "bias": jnp.zeros(24)},
    "b": {"kernel": 0.02 * draw(24, 16), "bias": jnp.zeros(16)},
}
Rounding = Callable[[Any], Any]


def straight_through(rounding: Rounding) -> Rounding:
    return lambda w: w + jax.lax.stop_gradient(rounding(w) - w)


def through(dtype: Any) -> Rounding:
    return lambda w: w.astype(dtype).astype(w.dtype)


def network(rounding: Rounding) -> Any:
    def apply(p: Any, x: Any) -> Any:
        hidden = jnp.tanh(x @ rounding(p["a"]["kernel"]) + p["a"]["bias"][None])
        return hidden @ rounding(p["b"]["kernel"]) + p["b"]["bias"][None]

    return apply


def levels(w: Any) -> Any:
    return jnp.round(64 * w) / 64


#: Functions that are not linear in the kernel, and can have any scale.
FITTED: dict[str, Rounding] = {
    "float8": through(jnp.float8_e4m3fn),
    "fewer bits": lambda w: jax.lax.reduce_precision(w, 5, 2),
    "the sign times the mean size": straight_through(
        lambda w: jnp.sign(w) * jnp.abs(w).mean(0)[None]
    ),
    "an even grid": straight_through(levels),
}
#: Functions that have one scale, or few.
UNFITTED: dict[str, Rounding] = {
    "the sign": straight_through(jnp.sign),
    "three levels": straight_through(lambda w: jnp.sign(w) * (jnp.abs(w) > 0.01).astype(w.dtype)),
}


@pytest.mark.parametrize("name", FITTED)
def test_rounded_kernels_have_unit_variance(name: str) -> None:
    apply = network(FITTED[name])
    params = jn.variance_preserving_init(jn.read(apply, PARAMS, X))
    _, layers = jn.collect_preactivations(jn.read(apply, params, X))
    for values in layers.values():
        assert np.float64(values).std() == pytest.approx(1, abs=0.04)


def test_each_unit_of_a_rounded_kernel_is_standardized() -> None:
    apply = network(FITTED["float8"])
    params = jn.data_dependent_init(jn.read(apply, PARAMS, X))
    _, layers = jn.collect_preactivations(jn.read(apply, params, X))
    for values in layers.values():
        np.testing.assert_allclose(np.float64(values).std(0), 1, atol=0.04)
        np.testing.assert_allclose(np.float64(values).mean(0), 0, atol=0.04)


@pytest.mark.kept("data_dependent_init-the sign", "variance_preserving_init-the sign")
@pytest.mark.parametrize("name", UNFITTED)
@pytest.mark.parametrize("init", [jn.variance_preserving_init, jn.data_dependent_init])
def test_roundings_that_no_factor_fits_are_refused(name: str, init: Any) -> None:
    with pytest.raises(ValueError, match="rounds the kernels a/kernel"):
        init(jn.read(network(UNFITTED[name]), PARAMS, X))


def test_in_a_trace_kernels_that_no_factor_fits_are_nan() -> None:
    apply = network(UNFITTED["the sign"])
    params = jax.jit(lambda p: jn.variance_preserving_init(jn.read(apply, p, X)))(PARAMS)
    assert all(np.isnan(params[name]["kernel"]).all() for name in params)


def test_a_rounded_kernel_is_not_made_orthogonal() -> None:
    with pytest.raises(ValueError, match=r"'a/kernel' is reparametrized.*rounded"):
        jn.orthogonal_init(jn.read(network(UNFITTED["the sign"]), PARAMS, X))


NARROW = (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float16)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("kind", [lambda w: w, lambda w: jn.Scaled.from_kernel(w, -2)])
def test_a_factor_may_be_larger_than_the_kernels_type(dtype: Any, kind: Any) -> None:
    """A factor of about 900, in a type that ends at 448, for a result of about 18."""
    kernel = (0.02 * draw(32, 32)).astype(dtype)
    apply = lambda p, x: x @ p["kernel"].astype(x.dtype)  # noqa: E731
    params = jn.variance_preserving_init(jn.read(apply, {"kernel": kind(kernel)}, X))
    weights = jn.effective(params)["kernel"]
    assert weights.dtype == dtype
    assert np.float64(X @ weights.astype(jnp.float32)).std() == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize("dtype", NARROW)
def test_weights_of_a_node_keep_their_norm_in_narrow_types(dtype: Any) -> None:
    """A norm of 800 in a type that ends at 448."""
    kernel = jnp.full((16, 2), 200.0).astype(dtype)
    node = jn.WeightNormalized.from_kernel(kernel, -2)
    np.testing.assert_allclose(
        node.effective().astype(jnp.float32), kernel.astype(jnp.float32), rtol=0.13
    )


def test_an_empty_minibatch_is_named() -> None:
    for init in (jn.variance_preserving_init, jn.data_dependent_init):
        with pytest.raises(ValueError, match=r"shape \(0, 24\).*minibatch is empty"):
            init(jn.read(network(lambda w: w), PARAMS, X[:0]))


def test_each_phase_of_a_rounded_transposed_convolution_is_standardized() -> None:
    """Units are phases and channels, and each is run again until its own factor fits."""
    images = draw(8, 8, 8, 3)

    def apply(p: Any, x: Any) -> Any:
        w = FITTED["float8"](p["w"])
        return jax.lax.conv_transpose(x, w, (2, 2), "SAME", None, ("NHWC", "HWIO", "NHWC"))

    params = {"w": 0.002 * draw(4, 4, 3, 2)}
    layout = jn.traced_layout(jn.read(apply, params, images))
    fitted = jn.data_dependent_init(jn.read(apply, params, images), layout=layout)
    y = np.float64(apply(fitted, images))
    for i in (0, 1):
        for j in (0, 1):
            np.testing.assert_allclose(y[:, i::2, j::2].std((0, 1, 2)), 1, atol=0.04)


def test_moving_averages_need_a_rounding_that_follows_the_kernel() -> None:
    x, name = 100 * X, "the sign times the mean size"
    raw = jn.moving_average_normalization(network(FITTED[name]), PARAMS, optax.sgd(1), x, heads=())
    _, layers = jn.collect_preactivations(jn.read(network(FITTED[name]), jn.effective(raw[1]), x))
    for values in layers.values():
        np.testing.assert_allclose(np.float64(values).std(0), 1, rtol=2e-2)
    for rounding in UNFITTED.values():
        with pytest.raises(ValueError, match="a/kernel, b/kernel to levels that do not follow"):
            jn.moving_average_normalization(network(rounding), PARAMS, optax.sgd(1), x, heads=())
