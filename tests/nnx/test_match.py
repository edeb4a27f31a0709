"""Parameters find their places by name; whatever does not fit is refused with its path."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import Scaled
from jaxnorm.nnx import Functional, functionalize

LAYERS = 12
X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)


def layers() -> nnx.Sequential:
    """Twelve layers by number: as strings, 10 and 11 come before 2."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(*(nnx.Linear(3, 3, rngs=rngs) for _ in range(LAYERS)))


@pytest.fixture(scope="module")
def deep() -> Functional:
    return functionalize(layers())


def output(functional: Functional, params: Any) -> Any:
    return functional.apply(params, functional.state, X, train=False)[0]


def restored(tree: Any) -> Any:
    """What a checkpoint library returns that was not told the tree: every key is a string."""
    if not isinstance(tree, dict):
        return np.asarray(tree)
    return {str(key): restored(value) for key, value in sorted(tree.items(), key=str)}


def test_keys_that_became_strings_and_flax_s_own_state_fit(deep: Functional) -> None:
    """By order layer 10 would be taken for layer 2: the output was off by more than its size."""
    strings = restored(deep.params)
    assert list(strings["layers"])[:3] == ["0", "1", "10"]
    for fits in (strings, nnx.state(layers(), nnx.Param)):
        np.testing.assert_array_equal(output(deep, fits), output(deep, deep.params))


#: What is done to the layers, and what the message names.
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "renamed": (
        lambda layers: layers.update({20: layers.pop(2)}),
        r"missing: layers/2/bias, layers/2/kernel.*unknown: layers/20/bias",
    ),
    "nested": (
        lambda layers: layers.update({0: {"inner": layers[0]}}),
        r"missing: layers/0/bias.*unknown: layers/0/inner/bias",
    ),
    "lost": (
        lambda layers: [layers.pop(number) for number in range(3)],
        r"missing: layers/0/bias, layers/0/kernel, layers/1/bias and 3 more",
    ),
    "one more": (lambda layers: layers.update({12: layers[0]}), r"unknown: layers/12/bias"),
    "another shape": (
        lambda layers: layers[5].update(kernel=jnp.ones((3, 4))),
        r"'layers/5/kernel' is float32\[3, 4\], wanted float32\[3, 3\]",
    ),
    "another type": (
        lambda layers: layers[5].update(bias=jnp.ones(3, jnp.int32)),
        r"'layers/5/bias' is int32\[3\], wanted float32\[3\]",
    ),
    "another width": (
        lambda layers: layers[5].update(bias=jnp.ones(3, jnp.bfloat16)),
        r"'layers/5/bias' is bfloat16\[3\].*mixed_precision=True",
    ),
    "raw parameters": (
        lambda layers: layers[5].update(kernel=Scaled.from_kernel(layers[5]["kernel"], -2)),
        r"layers/5/kernel.*effective\(params\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_named(deep: Functional, name: str) -> None:
    edit, message = REFUSED[name]
    params = jax.tree.map(lambda x: x, deep.params)
    edit(params["layers"])
    with pytest.raises(ValueError, match=message):
        output(deep, params)


def test_params_and_state_in_each_others_place() -> None:
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(3, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs))
    apply, params, state = functionalize(model)
    with pytest.raises(ValueError, match=r"params.*missing: layers/0/bias"):
        apply(state, params, X, train=True)
    with pytest.raises(ValueError, match=r"state.*missing: layers/1/mean, layers/1/var"):
        apply(params, {}, X, train=True)


class Counting(nnx.Module):
    """Keeps numbers that are no arrays of JAX yet, and leaves a value behind that is no state."""

    def __init__(self) -> None:
        self.gain, self.shift = nnx.Param(2.0), nnx.Param(np.zeros((1, 3)))
        self.calls, self.seen = nnx.Variable(0), nnx.Variable(np.zeros((), np.int64))

    def __call__(self, x: Any) -> Any:
        self.calls[...] = self.calls[...] + 1
        self.seen[...] = self.seen[...] + len(x)
        self.sown = nnx.Intermediate(x)  # what sow does
        return x * self.gain[...] + self.shift[...]


def test_numbers_that_become_arrays_and_sown_values_fit_the_next_step() -> None:
    """Each call sows its own; another model's sown values are refused."""
    apply, params, state = functionalize(Counting())
    step = jax.jit(lambda params, state, x: apply(params, state, x, train=True))
    for count in (1, 2, 3):
        value, state = step(params, state, X * count)
        params = jax.tree.map(lambda x: 2 * jnp.asarray(x), params)
        np.testing.assert_allclose(value, 2**count * count * X, rtol=1e-6)
        np.testing.assert_array_equal(state["sown"], X * count)
        assert (int(state["calls"]), int(state["seen"])) == (count, count * len(X))
    with pytest.raises(ValueError, match="unknown: sown"):
        functionalize(Counting()).apply(params, state, X, train=True)


def test_mixed_precision_takes_any_float_and_no_integer() -> None:
    apply, params, state = functionalize(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), mixed_precision=True)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    output, _ = apply(half, state, X.astype(jnp.bfloat16), train=True)
    assert output.dtype == jnp.bfloat16
    with pytest.raises(ValueError, match=r"'kernel' is int32\[3, 2\]"):
        apply(jax.tree.map(lambda x: x.astype(jnp.int32), params), state, X, train=True)
