"""Both initializers against a forward pass in float64; `tests/models` has other libraries'."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnorm as jn
from jaxnorm import data_dependent_init, effective, reparametrize, variance_preserving_init
from tests.initializers.models import layers, mlp, preactivations, uniform
from tests.trees import assert_close


class Init(NamedTuple):
    """An initializer, and what it promises of w'x, the bias and the axes of samples.

    Attributes:
        run: the initializer.
        per_unit: whether every unit has mean 0 and variance 1, or all have variance 1 together.
        tolerance: of layers of float32, each of which divides by what the last one made.
        half: of 8 significant bits: a rounding of 2^-8 a layer, twice.
    """

    run: Callable[..., Any]
    per_unit: bool
    tolerance: dict[str, float]
    half: dict[str, float]

    def holds(self, product: Any, bias: Any, half: bool = False) -> None:
        product, tolerance = np.asarray(product, np.float64), self.half if half else self.tolerance
        samples = tuple(range(product.ndim - np.ndim(bias))) if np.ndim(bias) else (0,)
        variance = product.var(samples if self.per_unit else None)
        np.testing.assert_allclose(variance, 1, **tolerance)
        if self.per_unit and np.ndim(bias):
            mean = (product + np.asarray(bias, np.float64)).mean(samples)
            np.testing.assert_allclose(mean, 0, **tolerance)


FLOAT32 = {"rtol": 0.0, "atol": 1e-4}
POOLED = Init(variance_preserving_init, False, {"rtol": 2e-5}, {"rtol": 3e-2})
STANDARD = Init(data_dependent_init, True, FLOAT32, {"rtol": 0.0, "atol": 0.1})
BOTH = pytest.mark.parametrize("init", [POOLED, STANDARD], ids=["pooled", "per unit"])


def assert_mlp(init: Init, params: Any, x: Any, half: bool = False) -> None:
    for number, (product, _) in enumerate(preactivations(params, x)):
        bias = np.asarray(params[f"layer_{number}"]["bias"], np.float64)
        init.holds(product, bias, half)


@BOTH
def test_sigmoid_layers_against_a_numpy_forward_pass(init: Init) -> None:
    """Every layer, of sizes in no order; a kernel is changed by one factor, or by one a unit."""
    params, x = layers(depth=12), uniform(200, 64)
    fitted = jax.jit(lambda p: init.run(mlp, p, x))(params)
    assert max(abs(product.var() - 1) for product, _ in preactivations(params, x)) > 5
    assert_mlp(init, fitted, x)
    for name, layer in params.items():
        ratio = np.asarray(fitted[name]["kernel"]) / np.asarray(layer["kernel"])
        np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:1], ratio.shape), rtol=1e-6)
        assert np.ptp(ratio[0]) > 1e-2 or not init.per_unit
        assert init.per_unit or np.array_equal(fitted[name]["bias"], layer["bias"])


@BOTH
def test_a_second_time_and_eagerly_it_is_the_same(init: Init) -> None:
    params, x = layers(depth=3), uniform(20, 64)
    once = init.run(mlp, params, x)
    assert_close(jax.jit(lambda p, x: init.run(mlp, p, x))(params, x), once)
    assert_close(init.run(mlp, once, x), once, {"rtol": 1e-5, "atol": 1e-5})


@BOTH
def test_an_ensemble_under_vmap(init: Init) -> None:
    x, one = uniform(20, 64), layers(depth=3)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, 3 * leaf[::-1]]), one)
    fitted = jax.jit(jax.vmap(lambda p: init.run(mlp, p, x)))(both)
    for number in range(2):
        assert_mlp(init, jax.tree.map(lambda leaf, n=number: leaf[n], fitted), x)


@pytest.mark.kept("bfloat16")
@BOTH
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision(init: Init, dtype: Any) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), layers(depth=2))
    x = uniform(100, 64).astype(dtype)
    fitted = jax.jit(lambda p: init.run(lambda p, x: mlp(p, x).astype(dtype), p, x))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(fitted)} == {jnp.dtype(dtype)}
    assert_mlp(init, fitted, x, half=True)


def scaled(kind: Any) -> Callable[[Any, Any], Any]:
    return lambda kernel, axes: jn.Scaled.from_kernel(kind.from_kernel(kernel, axes), axes)


NODES: dict[str, Callable[[Any, Any], Any]] = {
    "lcw": jn.LinearlyConstrained.from_kernel,
    "wn": jn.WeightNormalized.from_kernel,
    "cwn": jn.CenteredWeightNormalized.from_kernel,
    "scaled lcw": scaled(jn.LinearlyConstrained),
    "scaled sn": scaled(jn.SpectrallyNormalized),
}


@pytest.mark.kept("scaled", "wn")
@BOTH
@pytest.mark.parametrize("make", NODES.values(), ids=NODES)
def test_reparametrized_kernels_stay_what_they_are(init: Init, make: Any) -> None:
    raw = reparametrize(layers(depth=3), lambda path, kernel, axes: make(kernel, axes))
    x = uniform(100, 64)
    fitted = jax.jit(lambda r: init.run(mlp, r, x))(raw)
    assert jax.tree.structure(fitted) == jax.tree.structure(raw)
    assert_mlp(init, effective(fitted), x)


@BOTH
@pytest.mark.parametrize("value", [0.0, 0.1, 1e3])
def test_units_that_do_not_vary_keep_their_weights(init: Init, value: float) -> None:
    """But for rounding: one row repeated, and kernels that make equal numbers of equal inputs."""
    dense = lambda p, x: x @ p["kernel"]  # noqa: E731
    row = value * (1 + jnp.arange(64, dtype=jnp.float32) / 3)
    kernel = layers(1)["layer_0"]["kernel"] if init.per_unit else jnp.full((64, 5), 0.3)
    x = jnp.tile(row, (100, 1)) if init.per_unit else jnp.full((100, 64), value)
    np.testing.assert_array_equal(init.run(dense, {"kernel": kernel}, x)["kernel"], kernel)


@BOTH
def test_a_dead_unit_or_layer_is_kept_and_the_others_are_fitted(init: Init) -> None:
    params, x = layers(depth=2), uniform(50, 64)
    dead = params["layer_0"]["kernel"].at[:, 3 if init.per_unit else slice(None)].set(0.0)
    params["layer_0"]["kernel"] = dead
    fitted = jax.jit(lambda p: init.run(mlp, p, x))(params)
    (first, shifted), (second, _) = preactivations(fitted, x)
    init.holds(second, np.asarray(fitted["layer_1"]["bias"], np.float64))
    if init.per_unit:
        assert not first[:, 3].any()
        np.testing.assert_allclose(np.delete(shifted, 3, axis=1).var(0), 1, **FLOAT32)
    else:
        assert not np.any(fitted["layer_0"]["kernel"])


@BOTH
def test_a_kernel_that_is_used_twice_is_fitted_to_its_first_use(init: Init) -> None:
    """Its second use gets the same weights and bias, whatever they make of its input."""
    x = uniform(50, 64)
    params = {"shared": layers(depth=1)["layer_0"], "head": {"kernel": uniform(64, 3, seed=5)}}

    def twice(p: Any, x: Any, tanh: Any = jnp.tanh) -> Any:
        x = tanh(x @ p["shared"]["kernel"] + p["shared"]["bias"][None])
        return tanh(x @ p["shared"]["kernel"] + p["shared"]["bias"][None])

    fitted = init.run(lambda p, x: twice(p, x) @ p["head"]["kernel"], params, x)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), fitted)
    init.holds(np.float64(x) @ wide["shared"]["kernel"], wide["shared"]["bias"])
    second = twice(wide, np.float64(x), np.tanh)
    init.holds(second @ wide["head"]["kernel"], 0.0)


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
        POOLED.holds(np.float64(inputs) @ np.float64(fitted[name]["kernel"]), 0.0)
    # Its first use makes zeros of zeros.
    np.testing.assert_array_equal(fitted["h"]["kernel"], params["h"]["kernel"])


def test_the_bias_of_a_haiku_layer_has_a_short_name() -> None:
    """Beside a w; another leaf of that name beside another kernel stays as it is."""
    params = {"linear": {"w": uniform(5, 4), "b": jnp.ones(4)}}
    apply = lambda p, x: x @ p["linear"]["w"] + p["linear"]["b"][None]  # noqa: E731
    x = uniform(60, 5) + 3
    fitted = data_dependent_init(apply, params, x, layout=jn.layout_from_rules([("w$", -2)]))
    STANDARD.holds(np.float64(x) @ np.float64(fitted["linear"]["w"]), fitted["linear"]["b"])
    other = {"kernel": params["linear"]["w"], "b": jnp.ones(4)}
    fitted = data_dependent_init(lambda p, x: x @ p["kernel"], other, x)
    np.testing.assert_array_equal(fitted["b"], other["b"])


KERNEL, X = uniform(8, 8, seed=2), uniform(16, 8)


@BOTH
def test_flags_are_not_traced(init: Init) -> None:
    apply = lambda p, x, twice: x @ p["kernel"] if twice else x  # noqa: E731
    init.holds(
        np.float64(X) @ np.float64(init.run(apply, {"kernel": KERNEL}, X, True)["kernel"]), 0
    )


@BOTH
def test_a_stack_that_is_reparametrized_along_its_layers_is_refused(init: Init) -> None:
    """As `flax_layout` has it by the name, whose units are then sums over layers."""
    stack = {"kernel": uniform(2, 8, 8)}
    model = lambda p, x: jax.lax.scan(lambda h, k: (h @ k, None), x, p["kernel"])[0]  # noqa: E731
    along = jn.layout_from_rules([("kernel", (-3, -2))])
    with pytest.raises(ValueError, match=r"'kernel'.*\(-3, -2\).*traced_layout"):
        init.run(model, reparametrize(stack, jn.Scaled, along), X, layout=along)


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_preactivations_that_are_not_finite(init: Init, bad: float) -> None:
    """The first layer that makes them is named; the squares of 1e30 overflow."""
    params = {"first": {"kernel": KERNEL}, "second": {"kernel": KERNEL}}

    def model(p: Any, x: Any) -> Any:
        return jnp.where(x > 0.5, bad, x @ p["first"]["kernel"]) @ p["second"]["kernel"]

    with pytest.raises(ValueError, match="'second/kernel'"):
        init.run(model, params, X)
    with pytest.raises(ValueError, match="'first/kernel'"):
        init.run(model, params, X.at[3, 2].set(bad))
    under_jit = jax.jit(lambda p, x: init.run(model, p, x))(params, X.at[3, 2].set(bad))
    assert np.isnan(under_jit["first"]["kernel"]).all()
