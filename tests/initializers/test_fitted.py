"""Both data-dependent initializers against a forward pass in float64; more models in `models`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnorm as jn
from jaxnorm import data_dependent_init, effective, read, reparametrize, variance_preserving_init
from tests.initializers.models import layers, mlp, preactivations, uniform
from tests.trees import assert_close


class Init(NamedTuple):
    """An initializer, and the moments that it promises.

    Attributes:
        run: the initializer, of a model, its parameters and inputs.
        per_unit: True if every unit has mean 0 and variance 1, not all units together.
        tolerance: for layers of float32, each of which divides by the last one's moments.
        half: for 8 significant bits: a rounding of 2^-8 per layer, twice.
    """

    run: Callable[..., Any]
    per_unit: bool
    tolerance: dict[str, float]
    half: dict[str, float]

    def check(self, product: Any, bias: Any, half: bool = False) -> None:
        """Asserts the promise for w'x and the bias, of one value per unit or 0 without a bias."""
        product, tolerance = np.asarray(product, np.float64), self.half if half else self.tolerance
        samples = tuple(range(product.ndim - np.ndim(bias))) if np.ndim(bias) else (0,)
        variance = product.var(samples if self.per_unit else None)
        np.testing.assert_allclose(variance, 1, **tolerance)
        if self.per_unit and np.ndim(bias):
            mean = (product + np.asarray(bias, np.float64)).mean(samples)
            np.testing.assert_allclose(mean, 0, **tolerance)

    def check_mlp(self, params: Any, x: Any, half: bool = False) -> None:
        for number, (product, _) in enumerate(preactivations(params, x)):
            self.check(product, np.asarray(params[f"layer_{number}"]["bias"], np.float64), half)


def of_model(init: Any) -> Callable[..., Any]:
    """Returns an initializer as a function of a model, its parameters and inputs."""
    return lambda *model: init(read(*model))


FLOAT32 = {"rtol": 0.0, "atol": 1e-4}
POOLED = Init(
    lambda *model: variance_preserving_init(read(*model)), False, {"rtol": 2e-5}, {"rtol": 3e-2}
)
STANDARD = Init(
    lambda *model: data_dependent_init(read(*model)), True, FLOAT32, {"rtol": 0.0, "atol": 0.1}
)
BOTH = pytest.mark.parametrize("init", [POOLED, STANDARD], ids=["pooled", "per unit"])


@BOTH
def test_sigmoid_layers_against_a_numpy_forward_pass(init: Init) -> None:
    """A kernel is multiplied by one factor, or by one per unit; pooled, biases do not change."""
    params, x = layers(depth=12), uniform(200, 64)
    fitted = jax.jit(lambda p: init.run(mlp, p, x))(params)
    assert max(abs(product.var() - 1) for product, _ in preactivations(params, x)) > 5
    init.check_mlp(fitted, x)
    for name, layer in params.items():
        ratio = np.asarray(fitted[name]["kernel"]) / np.asarray(layer["kernel"])
        np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:1], ratio.shape), rtol=1e-6)
        assert np.ptp(ratio[0]) > 1e-2 or not init.per_unit
        assert init.per_unit or np.array_equal(fitted[name]["bias"], layer["bias"])


@BOTH
def test_second_and_eager_runs_change_nothing(init: Init) -> None:
    params, x = layers(depth=3), uniform(20, 64)
    once = init.run(mlp, params, x)
    assert_close(jax.jit(lambda p, x: init.run(mlp, p, x))(params, x), once)
    assert_close(init.run(mlp, once, x), once, {"rtol": 1e-5, "atol": 1e-5})


@BOTH
def test_ensemble_under_vmap(init: Init) -> None:
    x, member = uniform(20, 64), layers(depth=3)
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, 3 * leaf[::-1]]), member)
    fitted = jax.jit(jax.vmap(lambda p: init.run(mlp, p, x)))(members)
    for number in range(2):
        init.check_mlp(jax.tree.map(lambda leaf, n=number: leaf[n], fitted), x)


@pytest.mark.kept("bfloat16")
@BOTH
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision(init: Init, dtype: Any) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), layers(depth=2))
    x = uniform(100, 64).astype(dtype)
    fitted = jax.jit(lambda p: init.run(lambda p, x: mlp(p, x).astype(dtype), p, x))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(fitted)} == {jnp.dtype(dtype)}
    init.check_mlp(fitted, x, half=True)


def scaled(kind: Any) -> Callable[[Any, Any], Any]:
    return lambda kernel, axes: jn.Scaled.from_kernel(kind.from_kernel(kernel, axes), axes)


NODES: dict[str, Callable[[Any, Any], Any]] = {
    "lcw": jn.LinearlyConstrained.from_kernel,
    "wn": jn.WeightNormalized.from_kernel,
    "cwn": jn.CenteredWeightNormalized.from_kernel,
    "scaled lcw": scaled(jn.LinearlyConstrained),
    "scaled sn": scaled(jn.SpectrallyNormalized),
}


@pytest.mark.kept("cwn-pooled")
@BOTH
@pytest.mark.parametrize("make", NODES.values(), ids=NODES)
def test_reparametrized_kernels_stay_reparametrized(init: Init, make: Any) -> None:
    raw = reparametrize(layers(depth=3), lambda path, kernel, axes: make(kernel, axes))
    x = uniform(100, 64)
    fitted = jax.jit(lambda r: init.run(mlp, r, x))(raw)
    assert jax.tree.structure(fitted) == jax.tree.structure(raw)
    init.check_mlp(effective(fitted), x)


def dense(params: Any, x: Any) -> Any:
    return x @ params["kernel"]


@BOTH
@pytest.mark.parametrize("value", [0.0, 0.1, 1e3])
def test_constant_units_keep_their_weights(init: Init, value: float) -> None:
    """Units vary by rounding only: for one row repeated, or equal weights of equal inputs."""
    row = value * (1 + jnp.arange(64, dtype=jnp.float32) / 3)
    kernel = layers(1)["layer_0"]["kernel"] if init.per_unit else jnp.full((64, 5), 0.3)
    x = jnp.tile(row, (100, 1)) if init.per_unit else jnp.full((100, 64), value)
    np.testing.assert_array_equal(init.run(dense, {"kernel": kernel}, x)["kernel"], kernel)


@BOTH
def test_dead_unit_or_layer_is_kept_and_all_others_are_fitted(init: Init) -> None:
    params, x = layers(depth=2), uniform(50, 64)
    dead = params["layer_0"]["kernel"].at[:, 3 if init.per_unit else slice(None)].set(0.0)
    params["layer_0"]["kernel"] = dead
    fitted = jax.jit(lambda p: init.run(mlp, p, x))(params)
    (first, shifted), (second, _) = preactivations(fitted, x)
    init.check(second, np.asarray(fitted["layer_1"]["bias"], np.float64))
    if init.per_unit:
        assert not first[:, 3].any()
        np.testing.assert_allclose(np.delete(shifted, 3, axis=1).var(0), 1, **FLOAT32)
    else:
        assert not np.any(fitted["layer_0"]["kernel"])


@BOTH
def test_kernel_that_is_used_twice_is_fitted_to_its_first_use(init: Init) -> None:
    """The second use has the same weights and bias, whatever its pre-activations are."""
    x = uniform(50, 64)
    params = {"shared": layers(depth=1)["layer_0"], "head": {"kernel": uniform(64, 3, seed=5)}}

    def twice(p: Any, x: Any, tanh: Any = jnp.tanh) -> Any:
        x = tanh(x @ p["shared"]["kernel"] + p["shared"]["bias"][None])
        return tanh(x @ p["shared"]["kernel"] + p["shared"]["bias"][None])

    fitted = init.run(lambda p, x: twice(p, x) @ p["head"]["kernel"], params, x)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), fitted)
    init.check(np.float64(x) @ wide["shared"]["kernel"], wide["shared"]["bias"])
    second = twice(wide, np.float64(x), np.tanh)
    init.check(second @ wide["head"]["kernel"], 0.0)


def test_a_second_use_with_a_bias_of_its_own_keeps_that_bias() -> None:
    """The layer after it is fitted to what the second use returns."""
    draw = lambda *shape, seed: uniform(*shape, seed=seed)  # noqa: E731
    params = {"w": draw(8, 8, seed=1), "one": draw(8, seed=2), "two": 3 + draw(8, seed=3)}
    params |= {"next": {"kernel": draw(8, 4, seed=4), "bias": jnp.zeros(4)}}

    def apply(p: Any, x: Any) -> Any:
        x = jnp.tanh(x @ p["w"] + p["one"][None])
        x = jnp.tanh(x @ p["w"] + p["two"][None])
        return x @ p["next"]["kernel"] + p["next"]["bias"][None]

    x = uniform(64, 8)
    made = jn.data_dependent_init(jn.read(apply, params, x))
    np.testing.assert_array_equal(made["two"], params["two"])
    np.testing.assert_allclose(apply(made, x).mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(apply(made, x).std(0), 1, rtol=1e-4)


def test_products_of_constants_are_fitted_too() -> None:
    """A table of positions, and the initial state of an unrolled recurrent network."""
    positions = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    params = {name: {"kernel": uniform(size, 4)} for name, size in (("x", 3), ("t", 5), ("h", 4))}
    x = uniform(40, 6, 3, seed=2)

    def model(p: Any, x: Any) -> Any:
        x = x @ p["x"]["kernel"] + (positions @ p["t"]["kernel"])[None]
        h = jnp.zeros((40, 4))
        for t in range(6):
            h = jnp.tanh(h @ p["h"]["kernel"] + x[:, t])
        return h

    fitted = variance_preserving_init(read(model, params, x))
    for name, inputs in (("x", np.asarray(x)), ("t", positions)):
        POOLED.check(np.float64(inputs) @ np.float64(fitted[name]["kernel"]), 0.0)
    # The first use multiplies zeros.
    np.testing.assert_array_equal(fitted["h"]["kernel"], params["h"]["kernel"])


def test_haiku_names_kernel_and_bias_w_and_b() -> None:
    """A leaf ``b`` beside a kernel of another name does not change."""
    params = {"linear": {"w": uniform(5, 4), "b": jnp.ones(4)}}
    apply = lambda p, x: x @ p["linear"]["w"] + p["linear"]["b"][None]  # noqa: E731
    x = uniform(60, 5) + 3
    fitted = data_dependent_init(read(apply, params, x), layout=jn.layout_from_rules([("w$", -2)]))
    STANDARD.check(np.float64(x) @ np.float64(fitted["linear"]["w"]), fitted["linear"]["b"])
    beside = {"kernel": params["linear"]["w"], "b": jnp.ones(4)}
    np.testing.assert_array_equal(data_dependent_init(read(dense, beside, x))["b"], beside["b"])


KERNEL, X = uniform(8, 8, seed=2), uniform(16, 8)


@BOTH
def test_flags_are_not_traced(init: Init) -> None:
    apply = lambda p, x, multiplies: dense(p, x) if multiplies else x  # noqa: E731
    fitted = init.run(apply, {"kernel": KERNEL}, X, True)["kernel"]
    init.check(np.float64(X) @ np.float64(fitted), 0)


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_preactivations_that_are_not_finite(init: Init, bad: float) -> None:
    """The error names the first such layer; the squares of 1e30 overflow."""
    params = {"first": {"kernel": KERNEL}, "second": {"kernel": KERNEL}}

    def model(p: Any, x: Any) -> Any:
        return jnp.where(x > 0.5, bad, x @ p["first"]["kernel"]) @ p["second"]["kernel"]

    with pytest.raises(ValueError, match="'second/kernel'"):
        init.run(model, params, X)
    with pytest.raises(ValueError, match="'first/kernel'"):
        init.run(model, params, X.at[3, 2].set(bad))
    under_jit = jax.jit(lambda p, x: init.run(model, p, x))(params, X.at[3, 2].set(bad))
    assert np.isnan(under_jit["first"]["kernel"]).all()
