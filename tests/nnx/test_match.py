"""Parameters find their places by name; whatever does not fit is refused with its path."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx, serialization

from jaxnorm import (
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    effective,
    reparametrize,
)
from jaxnorm.nnx import Functional, functionalize
from tests.trees import assert_equal

LAYERS = 12
X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)


@pytest.fixture(scope="module")
def deep() -> Functional:
    """Twelve layers by number: as strings, 10 and 11 come before 2."""
    rngs = nnx.Rngs(0)
    return functionalize(nnx.Sequential(*(nnx.Linear(3, 3, rngs=rngs) for _ in range(LAYERS))))


def output(functional: Functional, params: Any) -> Any:
    return functional.apply(params, functional.state, X, train=False)[0]


def restored(tree: Any) -> Any:
    """What a checkpoint library returns that was not told the tree: every key is a string."""
    if not isinstance(tree, dict):
        return np.asarray(tree)
    return {str(key): restored(value) for key, value in sorted(tree.items(), key=str)}


def test_keys_that_became_strings_are_found_again(deep: Functional) -> None:
    """By order layer 10 would be taken for layer 2: the output was off by more than its size."""
    strings = restored(deep.params)
    assert list(strings["layers"])[:3] == ["0", "1", "10"]
    np.testing.assert_array_equal(output(deep, strings), output(deep, deep.params))


def test_the_state_of_flax_fits_too(deep: Functional) -> None:
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(*(nnx.Linear(3, 3, rngs=rngs) for _ in range(LAYERS)))
    boxed = nnx.state(model, nnx.Param)
    np.testing.assert_array_equal(output(deep, boxed), output(deep, deep.params))


def edited(params: Any, edit: Any) -> Any:
    copy = jax.tree.map(lambda x: x, params)
    edit(copy["layers"])
    return copy


REFUSED = {
    "renamed": (
        lambda layers: layers.update({20: layers.pop(2)}),
        r"missing: layers/2/bias, layers/2/kernel; unknown: layers/20/bias",
    ),
    "nested": (
        lambda layers: layers.update({0: {"inner": layers[0]}}),
        r"missing: layers/0/bias, .*unknown: layers/0/inner/bias",
    ),
    "lost": (
        lambda layers: [layers.pop(number) for number in range(3)],
        r"missing: layers/0/bias, layers/0/kernel, layers/1/bias and 3 more; ",
    ),
    "one more": (lambda layers: layers.update({12: layers[0]}), r"unknown: layers/12/bias"),
    "another shape": (
        lambda layers: layers[5].update(kernel=jnp.ones((3, 4))),
        r"1 of the leaves of params .*'layers/5/kernel' is float32\[3, 4\], wanted float32\[3, 3\]",
    ),
    "another type": (
        lambda layers: layers[5].update(bias=jnp.ones(3, jnp.int32)),
        r"'layers/5/bias' is int32\[3\], wanted float32\[3\]",
    ),
    "another width": (
        lambda layers: layers[5].update(bias=jnp.ones(3, jnp.bfloat16)),
        r"'layers/5/bias' is bfloat16\[3\], wanted .*mixed_precision=True",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_named(deep: Functional, name: str) -> None:
    edit, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as error:
        output(deep, edited(deep.params, edit))
    assert "\n" not in str(error.value)


def test_raw_parameters_are_told_from_plain_ones(deep: Functional) -> None:
    message = "params have reparametrized kernels at layers/0/kernel, layers/1/kernel, "
    with pytest.raises(ValueError, match=f"{message}.*call apply\\(effective\\(params\\), "):
        output(deep, reparametrize(deep.params, Scaled))


def test_params_and_state_in_each_others_place() -> None:
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(3, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs))
    apply, params, state = functionalize(model)
    with pytest.raises(ValueError, match=r"params do not have .*missing: layers/0/bias"):
        apply(state, params, X, train=True)
    message = "state do not have the model's paths (missing: layers/1/mean, layers/1/var;"
    with pytest.raises(ValueError, match=re.escape(message)):
        apply(params, {}, X, train=True)


class Counting(nnx.Module):
    """Keeps numbers that are no arrays of JAX yet."""

    def __init__(self) -> None:
        self.gain, self.shift = nnx.Param(2.0), nnx.Param(np.zeros((1, 3)))
        self.calls, self.seen = nnx.Variable(0), nnx.Variable(np.zeros((), np.int64))

    def __call__(self, x: Any) -> Any:
        self.calls[...] = self.calls[...] + 1
        self.seen[...] = self.seen[...] + len(x)
        return x * self.gain[...] + self.shift[...]


def test_numbers_that_become_arrays_in_a_step_fit_the_next() -> None:
    apply, params, state = functionalize(Counting())
    step = jax.jit(lambda params, state: apply(params, state, X, train=True))
    for count in (1, 2):
        value, state = step(params, state)
        params = jax.tree.map(lambda x: 2 * jnp.asarray(x), params)
        np.testing.assert_allclose(value, 2 * count * X, rtol=1e-6)
        assert (int(state["calls"]), int(state["seen"])) == (count, count * len(X))


class Sowing(nnx.Module):
    """Leaves a value behind that is no state of its own."""

    def __call__(self, x: Any) -> Any:
        self.sow(nnx.Intermediate, "seen", x)
        return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sown_values_may_come_back_where_the_model_has_sown_them() -> None:
    apply, params, state = functionalize(Sowing())
    for number in range(2):
        _, state = apply(params, state, X + number, train=True)
        np.testing.assert_array_equal(state["seen"][0], X + number)
    with pytest.raises(ValueError, match=r"unknown: seen/0.*what a call adds \(sown values\)"):
        functionalize(Sowing()).apply(params, state, X, train=True)


def test_mixed_precision_takes_any_float_and_no_integer() -> None:
    apply, params, state = functionalize(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), mixed_precision=True)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    output, _ = apply(half, state, X.astype(jnp.bfloat16), train=True)
    assert output.dtype == jnp.bfloat16
    with pytest.raises(ValueError, match=r"'kernel' is int32\[3, 2\]"):
        apply(jax.tree.map(lambda x: x.astype(jnp.int32), params), state, X, train=True)


def nodes() -> Any:
    """Nodes of three kinds, one in another, among plain arrays."""
    kernels = {name: jnp.arange(6.0).reshape(3, 2) + place for place, name in enumerate("abc")}
    constrained = LinearlyConstrained.from_kernel(kernels["a"], -2)
    return {
        "nested": Scaled.from_kernel(constrained, -2),
        "spectral": SpectrallyNormalized.from_kernel(kernels["b"], -2),
        "plain": kernels["c"],
    }


def test_nodes_go_through_flax_serialization() -> None:
    target = jax.tree.map(jnp.zeros_like, nodes())
    back = serialization.from_bytes(target, serialization.to_bytes(nodes()))
    assert jax.tree.structure(back) == jax.tree.structure(nodes())
    assert_equal(back, nodes())
    on_device = jax.tree.map(jnp.asarray, back)
    assert_equal(effective(on_device), effective(nodes()))


def test_bytes_of_another_kind_are_refused() -> None:
    saved = serialization.to_bytes({"dense": nodes()["nested"]})
    plain = {"dense": SpectrallyNormalized.from_kernel(jnp.ones((3, 2)), -2)}
    message = r"kernel at \./dense is a SpectrallyNormalized with the fields kernel, vector, .*"
    with pytest.raises(ValueError, match=f"{message}has kernel, scale; restore"):
        serialization.from_bytes(plain, saved)
