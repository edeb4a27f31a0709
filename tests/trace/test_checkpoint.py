"""A model's `jax.checkpoint` saves as much memory in passes over its layers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxnorm as jn

LAYERS, WIDTH, ROWS = 12, 32, 64
LAYOUT = jn.layout_from_rules([("kernel", -2)])
PARAMS = {"kernel": jnp.zeros((LAYERS, WIDTH, WIDTH)), "bias": jnp.zeros((LAYERS, WIDTH))}
X = jnp.ones((ROWS, WIDTH))


def layer(x: Any, params: Any) -> Any:
    x = x @ params["kernel"] + params["bias"][None]
    for _ in range(8):
        x = jnp.tanh(x) + jnp.sin(x)
    return x, None


def stacked(layer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda params, x: jax.lax.scan(layer, x, params)[0]


def noisy(apply: Callable[..., Any]) -> Callable[..., Any]:
    model = jn.with_scale_noise(apply, 0.1, layout=LAYOUT)
    return lambda params: model(jax.random.key(0), params, X).sum()


def collected(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda params: jn.collect_preactivations(jn.read(apply, params, X), layout=LAYOUT)[
        0
    ].sum()


def memory(loss: Callable[..., Any]) -> int:
    return jax.jit(jax.grad(loss)).lower(PARAMS).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.kept("collected")
@pytest.mark.parametrize("transform", [noisy, collected])
def test_a_scan_of_checkpoints(transform: Callable[..., Any]) -> None:
    """The gradient stores the input of each layer, not its eighteen activations."""
    assert memory(transform(stacked(jax.checkpoint(layer)))) < 0.3 * memory(
        transform(stacked(layer))
    )


@pytest.mark.slow
def test_the_policy_stays() -> None:
    policy = jax.checkpoint_policies.everything_saveable
    everything = jax.checkpoint(layer, policy=policy)
    assert memory(noisy(stacked(everything))) > 0.9 * memory(noisy(stacked(layer)))
