"""A bias beside a kernel that the model does not just add to its product stays, and it is said."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import data_dependent_init

RNG = np.random.default_rng(0)

#: Two float32 layers, each of which divides by the deviation of what the last one made.
MOMENTS = {"rtol": 0.0, "atol": 1e-4}


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


X = draw(60, 8) + 0.5
PARAMS = {
    "first": {"kernel": draw(8, 8), "other": draw(8, 8), "bias": draw(1, 8)},
    "last": {"kernel": draw(8, 4), "bias": draw(1, 4)},
}


def of_sum(p: Any, x: Any) -> Any:
    """As in a recurrent cell."""
    return x @ p["kernel"] + x @ p["other"] + p["bias"]


def of_two(p: Any, x: Any) -> Any:
    return x @ p["kernel"] + p["bias"] + jnp.sin(x @ p["other"] + p["bias"])


#: What the first layer makes of its input.
ELSEWHERE: dict[str, Callable[[Any, Any], Any]] = {
    "after a gain": lambda p, x: 3 * (x @ p["kernel"]) + p["bias"],
    "after an activation": lambda p, x: jnp.sin(x @ p["kernel"]) + p["bias"],
    "twice its size": lambda p, x: x @ p["kernel"] + 2 * p["bias"],
    "subtracted": lambda p, x: x @ p["kernel"] - p["bias"],
    "on the input": lambda p, x: (x + p["bias"]) @ p["kernel"],
    "added twice": lambda p, x: x @ p["kernel"] + p["bias"] + p["bias"],
    "read again": lambda p, x: jnp.sin(x @ p["kernel"] + p["bias"]) * p["bias"],
    "nowhere": lambda p, x: x @ p["kernel"],
    "to a sum of two products": of_sum,
    "to each of two products": of_two,
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_next_layer_sees_what_the_model_makes_of_it(name: str) -> None:
    """It was fitted to another network: that in which the bias is added to the product."""
    first = ELSEWHERE[name]

    def apply(p: Any, x: Any) -> Any:
        return jnp.sin(first(p["first"], x)) @ p["last"]["kernel"] + p["last"]["bias"]

    with pytest.warns(UserWarning, match="does not add the bias 'first/bias'.*'first/kernel'.*Add"):
        fitted = data_dependent_init(apply, PARAMS, X)
    np.testing.assert_array_equal(fitted["first"]["bias"], PARAMS["first"]["bias"])
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), fitted)
    hidden = np.sin(np.asarray(first(fitted["first"], X), np.float64))
    output = hidden @ wide["last"]["kernel"] + wide["last"]["bias"]
    np.testing.assert_allclose(output.mean(0), 0, **MOMENTS)
    np.testing.assert_allclose(output.var(0), 1, **MOMENTS)


def test_a_kernel_that_is_used_without_its_bias_too() -> None:
    """The bias is fitted at the first use, and is not at the second."""

    def hidden(p: Any, x: Any) -> Any:
        h = jnp.sin(x @ p["first"]["kernel"] + p["first"]["bias"])
        return jnp.sin(h @ p["first"]["kernel"])

    apply = lambda p, x: hidden(p, x) @ p["last"]["kernel"]  # noqa: E731
    params = PARAMS | {"last": {"kernel": draw(8, 4)}}
    fitted = data_dependent_init(apply, params, X)
    first = X @ fitted["first"]["kernel"] + fitted["first"]["bias"]
    np.testing.assert_allclose(np.asarray(first, np.float64).mean(0), 0, **MOMENTS)
    np.testing.assert_allclose(np.asarray(apply(fitted, X), np.float64).var(0), 1, **MOMENTS)


def test_a_kernel_that_is_used_along_its_other_axes_too() -> None:
    """A tied decoder: its units are not those of the encoder."""
    decode = ((1,), (1,)), ((), ())
    apply = lambda p, x: jax.lax.dot_general(x @ p["kernel"], p["kernel"], decode)  # noqa: E731
    with pytest.raises(ValueError, match=r"kernel 'kernel'.*again along other axes.*Leave it out"):
        data_dependent_init(apply, {"kernel": draw(8, 4)}, X)


#: A product of four heads of four units, and their biases: in the kernel's order, and in others.
IN_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "of heads": lambda h, b: h + b.reshape(1, 4, 4),
    "of heads that are merged": lambda h, b: h.reshape(-1, 16) + b[None],
    "both transposed": lambda h, b: h.mT + b.reshape(1, 4, 4).mT,
}
IN_ANOTHER: dict[str, Callable[[Any, Any], Any]] = {
    "transposed": lambda h, b: h + b.reshape(1, 4, 4).mT,
    "of a transposed product": lambda h, b: h.mT + b.reshape(1, 4, 4),
    "of heads that are merged transposed": lambda h, b: h.mT.reshape(-1, 16) + b[None],
    "reversed": lambda h, b: h.reshape(-1, 16) + b[None, ::-1],
}
HEADS = {"kernel": draw(8, 4, 4), "bias": draw(16)}


def of_heads(add: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda p, x: add(jnp.einsum("bi,iho->bho", x, p["kernel"]), p["bias"])


def of_inputs(params: Any) -> Any:
    return {"kernel": (-3,), "bias": None}


@pytest.mark.parametrize("name", IN_ORDER)
def test_a_bias_in_the_order_of_the_units_is_fitted(name: str) -> None:
    apply = of_heads(IN_ORDER[name])
    fitted = data_dependent_init(apply, HEADS, X, layout=of_inputs)
    output = np.asarray(apply(fitted, X), np.float64)
    np.testing.assert_allclose(output.mean(0), 0, **MOMENTS)
    np.testing.assert_allclose(output.var(0), 1, **MOMENTS)


@pytest.mark.parametrize("name", IN_ANOTHER)
def test_a_bias_in_another_order_stays(name: str) -> None:
    """Where heads and their units are as many, each got another one's, without a word."""
    apply = of_heads(IN_ANOTHER[name])
    with pytest.warns(UserWarning, match="does not add the bias 'bias' .* as it is"):
        fitted = data_dependent_init(apply, HEADS, X, layout=of_inputs)
    np.testing.assert_array_equal(fitted["bias"], HEADS["bias"])
    np.testing.assert_allclose(np.asarray(apply(fitted, X), np.float64).var(0), 1, **MOMENTS)
