"""Python numbers in a program, such as the condition of a choice."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnorm as jn
from jaxnorm._roles import roles_of
from jaxnorm._trace.reading import Reading
from tests.residual_networks import shape

PARAMS = {"a": shape(4, 4), "b": shape(4, 4), "c": shape(4, 2)}


def chosen(condition: Any) -> Callable[..., Any]:
    """Network with a residual sum, or what a condition chooses of it."""

    def apply(p: Any, x: Any) -> Any:
        x = x @ p["a"]
        return jnp.where(condition, x + jnp.tanh(x) @ p["b"], x) @ p["c"]

    return apply


def limited(limit: Callable[..., Any]) -> Callable[..., Any]:
    def apply(p: Any, x: Any) -> Any:
        x = x @ p["a"]
        return limit(x + jnp.tanh(x) @ p["b"]) @ p["c"]

    return apply


def summed(p: Any, x: Any) -> Any:
    x = x @ p["a"]
    return (x + jnp.tanh(x) @ p["b"]) @ p["c"]


PROGRAMS = {
    "a condition": chosen(True),
    "one that is false": chosen(False),
    "one of NumPy": chosen(np.True_),
    "one for each unit": chosen(np.array([True, False, True, True])),
    "a selection": limited(lambda x: jax.lax.select_n(True, x, x)),
    "a clip": limited(lambda x: jax.lax.clamp(-1.0, x, 1.0)),
    "a number of an index": limited(lambda x: x * jnp.where(x.shape[0] > 2, 1.0, 2.0)),
    "a key": limited(lambda x: jnp.where(jax.random.bernoulli(jax.random.key(3), 0.5), x, x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_literals_are_constants(name: str) -> None:
    x = shape(5, 4)
    layout = jn.traced_layout(jn.read(PROGRAMS[name], PARAMS, x))
    assert layout(PARAMS) == dict.fromkeys("abc", (-2,))
    roles = roles_of(Reading(PROGRAMS[name], PARAMS, (x,)))
    assert roles == roles_of(Reading(summed, PARAMS, (x,)))


def test_a_choice_by_a_constant_makes_the_depth_of_what_it_chooses() -> None:
    depths = {
        jn.shaping.traced_depth(jn.read(apply, PARAMS, shape(5, 4)))(0.0, lambda value: value + 1)
        for apply in (chosen(True), chosen(np.array([True, False, True, True])), summed)
    }
    assert depths == {1.0}
