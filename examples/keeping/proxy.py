"""Proxy normalization (Labatie et al. 2021) on top of the call.

Each activation loses the mean, and is divided by the deviation, that it would have if its unit's
pre-activations were Gaussian. After the call's fit they have mean 0 and variance 1 over the first
examples; what the bias has moved since is their mean, the *shift*. So an activation f(y) becomes
(f(y) - E f(Z + shift)) / std f(Z + shift), with a gradient through both, and without statistics.
"""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.keeping.networks import Network, Params, along

#: Nodes of a Gaussian and their weights.
NODES = np.linspace(-6, 6, 193, dtype=np.float32)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def gaussian(activation: Any, shift: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns mean and deviation of the activation of N(shift, 1), for each shift."""
    values = activation(shift[:, None] + NODES[None])
    mean = values @ WEIGHTS
    return mean, jnp.sqrt(((values - mean[:, None]) ** 2) @ WEIGHTS + 1e-5)


def proxied(network: Network, shifts: dict[str, jax.Array]) -> Network:
    """Returns the network whose activations of these layers are normalized."""

    def act(name: str, activation: Callable[..., Any], y: jax.Array) -> jax.Array:
        if name not in shifts:
            return activation(y)  # type: ignore[no-any-return]
        is_known = not isinstance(shifts[name], jax.core.Tracer)
        with jax.ensure_compile_time_eval() if is_known else nullcontext():
            mean, std = gaussian(activation, shifts[name])
        return (activation(y) - along(mean, y)) / along(std, y)

    return partial(network, act=act)


def layers_of(params: Params, which: str) -> Collection[str]:
    """Returns the names of "all" layers with an activation, or of those in front of "depthwise"."""
    ends = ("expand", "depthwise", "stem") if which == "all" else ("expand",)
    return [name for name in params if name.endswith(ends)]
