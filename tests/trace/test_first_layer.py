"""First layers: the kernels that are multiplied with the inputs themselves."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxnorm import Scaled, first_layer, read, reparametrize

X, W = jnp.ones((5, 4)), {name: jnp.ones((4, 4)) for name in "ab"}


def recurrent(p: Any, x: Any) -> Any:
    def turn(h: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["a"] + h @ p["b"]), None

    return jax.lax.scan(turn, jnp.zeros(4), x)[0]


@jax.custom_jvp
def linear(x: Any, w: Any, b: Any) -> Any:
    return x @ w + b[None]


linear.defjvp(lambda primals, tangents: (linear(*primals), linear(*tangents)))

#: Models of two kernels, and which of them are first.
CASES: dict[str, tuple[Callable[..., Any], str]] = {
    "standardized": (lambda p, x: (x - x.mean(0)[None]) / x.std() @ p["a"] @ p["b"], "a"),
    "scaled by a parameter": (lambda p, x: (x * p["b"][0, 0]) @ p["a"], ""),
    "both": (lambda p, x: x @ p["a"] + jnp.abs(x) @ p["b"], "ab"),
    "a shortcut": (lambda p, x: (x @ p["a"]) @ p["b"] + x @ p["b"], "a"),
    "twice": (lambda p, x: x @ p["a"] @ p["a"] @ p["b"], ""),
    "transposed": (lambda p, x: jnp.tanh(p["a"].T @ x.T).T @ p["b"], "a"),
    "a recurrence": (recurrent, "a"),
    "its own derivative": (
        lambda p, x: linear(linear(x, p["a"], jnp.ones(4)), p["b"], jnp.ones(4)),
        "a",
    ),
    "a bias of the first layer": (lambda p, x: (x @ p["a"] + p["b"][:1]) @ p["b"].T, "a"),
    "a branch": (lambda p, x: jax.lax.cond(x[0, 0] > 0, lambda: x @ p["a"], lambda: x), ""),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_that_are_multiplied_with_the_inputs(case: str) -> None:
    apply, first = CASES[case]
    assert first_layer(read(apply, W, X)) == {name: name in first for name in W}


def test_raw_parameters_have_the_first_layer_of_plain_ones() -> None:
    params = {name: {"kernel": kernel} for name, kernel in W.items()}
    apply = lambda p, x: x @ p["a"]["kernel"] @ p["b"]["kernel"]  # noqa: E731
    expected = {"a": {"kernel": True}, "b": {"kernel": False}}
    assert first_layer(read(apply, reparametrize(params, Scaled), X)) == expected
