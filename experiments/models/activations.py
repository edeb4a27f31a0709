"""The activations by name."""

import functools
from collections.abc import Mapping
from types import MappingProxyType

import jax

from experiments.models.style import Activation

ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "relu": jax.nn.relu,
        "leaky_relu": jax.nn.leaky_relu,
        "leaky_relu_0.2": functools.partial(jax.nn.leaky_relu, negative_slope=0.2),
        "elu": jax.nn.elu,
        "selu": jax.nn.selu,
        "gelu": jax.nn.gelu,
        "silu": jax.nn.silu,
        "sigmoid": jax.nn.sigmoid,
        "tanh": jax.nn.tanh,
        "identity": lambda x: x,
    }
)
