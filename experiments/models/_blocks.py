"""What the networks are made of: a linear map, perhaps a normalizer, an activation."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
from flax import nnx
from jaxtyping import Array, Float

from experiments.models._norms import MakeNorm

Activation = Callable[[Float[Array, "..."]], Float[Array, "..."]]

ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "relu": jax.nn.relu,
        "leaky_relu": jax.nn.leaky_relu,
        "elu": jax.nn.elu,
        "selu": jax.nn.selu,
        "gelu": jax.nn.gelu,
        "silu": jax.nn.silu,
        "sigmoid": jax.nn.sigmoid,
        "tanh": jax.nn.tanh,
    }
)

#: The name of every network's classifier, which methods leave unconstrained.
HEAD = "head"


class Block(nnx.Module):
    """``post_norm(activation(norm(linear(x))))``; without a norm the linear map has a bias instead.

    Every norm before the activation brings its own bias, which makes one before it redundant.
    """

    def __init__(
        self,
        make_linear: Callable[[bool], nnx.Module],
        width: int,
        make_norm: MakeNorm | None,
        activation: Activation,
        rngs: nnx.Rngs,
        make_post_norm: MakeNorm | None = None,
    ):
        self.linear = make_linear(make_norm is None)
        self.norm = None if make_norm is None else make_norm(width, rngs)
        self.activation = activation
        self.post_norm = None if make_post_norm is None else make_post_norm(width, rngs)

    def __call__(self, x: Float[Array, "rows *shape"]) -> Float[Array, "rows *out"]:
        x = self.linear(x)
        x = self.activation(x if self.norm is None else self.norm(x))
        return x if self.post_norm is None else self.post_norm(x)


def dense_block(
    inputs: int,
    width: int,
    make_norm: MakeNorm | None,
    activation: Activation,
    rngs: nnx.Rngs,
    make_post_norm: MakeNorm | None = None,
) -> Block:
    """A fully connected block."""

    def make_linear(use_bias: bool) -> nnx.Module:
        init = kernel_init(activation)
        return nnx.Linear(inputs, width, use_bias=use_bias, kernel_init=init, rngs=rngs)

    return Block(make_linear, width, make_norm, activation, rngs, make_post_norm)


def conv_block(
    inputs: int,
    width: int,
    make_norm: MakeNorm | None,
    activation: Activation,
    rngs: nnx.Rngs,
    make_post_norm: MakeNorm | None = None,
) -> Block:
    """A 3 x 3 convolution block with zero padding."""

    def make_linear(use_bias: bool) -> nnx.Module:
        init = kernel_init(activation)
        return nnx.Conv(inputs, width, (3, 3), use_bias=use_bias, kernel_init=init, rngs=rngs)

    return Block(make_linear, width, make_norm, activation, rngs, make_post_norm)


def kernel_init(activation: Activation) -> nnx.Initializer:
    """Glorot and Bengio's weights for saturating activations, else He et al.'s: ||w||^2 near 2."""
    saturating = activation in (jax.nn.sigmoid, jax.nn.tanh)
    return nnx.initializers.glorot_normal() if saturating else nnx.initializers.he_normal()
