"""Normalizers, activation and dropout between two linear maps of a network."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from experiments.models.magnitude import preserving_sum
from experiments.models.norms import MakeNorm

Values = Float[Array, "rows *shape"]
Activation = Callable[[Values], Values]

#: The activations by name.
ACTIVATIONS: Mapping[str, Activation] = {
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

#: The value of a dropped unit: the limit of SELU at minus infinity.
SATURATED = -1.7580993408473766


class Style(NamedTuple):
    """Normalizers, activation and dropout of every layer of a network.

    Attributes:
        norm: a maker of the normalizer before each activation, or None.
        activation: the nonlinearity.
        post_norm: a maker of the normalizer after each activation, or None.
        dropout: the rate of dropout after each layer.
        alpha_dropout: the rate of `AlphaDropout` after each layer.
        head_dropout: the rate of dropout before the classifier of a fully connected network.
        norm_at: the only layer with normalizers, counted from 1, in `at`; 0 for all layers.
        preserve_magnitude: if True, sums of residual branches keep mean squares.
        shaped: if True, the activation is shaped.
    """

    norm: MakeNorm | None = None
    activation: Activation = jax.nn.relu
    post_norm: MakeNorm | None = None
    dropout: float = 0.0
    alpha_dropout: float = 0.0
    head_dropout: float = 0.0
    norm_at: int = 0
    preserve_magnitude: bool = False
    shaped: bool = False

    def add(self, stream: Values, branch: Values) -> Values:
        """Adds the output of a branch to a residual stream."""
        return preserving_sum(stream, branch) if self.preserve_magnitude else stream + branch

    def at(self, layer: int) -> "Style":
        """Returns the style of one layer, counted from 1."""
        return self if self.norm_at in (0, layer) else self._replace(norm=None, post_norm=None)

    @property
    def use_bias(self) -> bool:
        """True if linear maps have a bias; a normalizer brings its own."""
        return self.norm is None

    @property
    def kernel_init(self) -> nnx.Initializer:
        """Glorot and Bengio's initializer for saturating activations, otherwise He et al.'s.

        SELU and shaped activations keep the variance of their inputs with LeCun's.
        """
        if self.activation is jax.nn.selu or self.shaped:
            return nnx.initializers.lecun_normal()
        saturating = self.activation in (jax.nn.sigmoid, jax.nn.tanh)
        return nnx.initializers.glorot_normal() if saturating else nnx.initializers.he_normal()

    def linear_options(self, rngs: nnx.Rngs) -> dict[str, Any]:
        """Returns the options of a linear map before a normalizer."""
        return {"use_bias": self.use_bias, "kernel_init": self.kernel_init, "rngs": rngs}


class AlphaDropout(nnx.Module):
    """a (x or alpha') + b in training, alpha' with probability ``rate``; x in evaluation.

    For q = 1 - rate, a = (q + alpha'^2 q (1 - q))^(-1/2) and b = -a (1 - q) alpha', an input of
    mean 0 and variance 1 has an output of mean 0 and variance 1.

    Args:
        rate: the probability that a unit is dropped.
        rngs: the random streams; its draws come from ``dropout``.

    Source: Klambauer et al. 2017, "Self-normalizing neural networks", section 2.
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs):
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        if self.dropout.deterministic:
            return x
        kept = 1 - self.dropout.rate
        scale = (kept + SATURATED**2 * kept * (1 - kept)) ** -0.5
        # Ordinary dropout of x - alpha' gives (x - alpha') / q or 0.
        dropped = self.dropout(x - jnp.asarray(SATURATED, x.dtype)) * kept + SATURATED
        return scale * (dropped - (1 - kept) * SATURATED)


class Nonlinearity(nnx.Module):
    """``dropout(post_norm(activation(norm(x))))``, without the layers that the style lacks.

    Args:
        width: the number of units.
        style: normalizers, activation and dropout.
        rngs: the random streams of parameters and of the dropout.
    """

    def __init__(self, width: int, style: Style, rngs: nnx.Rngs):
        self.norm = None if style.norm is None else style.norm(width, rngs=rngs)
        self.activation = style.activation
        self.post_norm = None if style.post_norm is None else style.post_norm(width, rngs=rngs)
        self.dropout = nnx.Dropout(style.dropout, rngs=rngs) if style.dropout else None
        alpha = style.alpha_dropout
        self.alpha_dropout = AlphaDropout(alpha, rngs=rngs) if alpha else None

    def __call__(self, x: Values) -> Values:
        layers = (self.norm, self.activation, self.post_norm, self.dropout, self.alpha_dropout)
        for layer in layers:
            x = x if layer is None else layer(x)
        return x


class Block(Nonlinearity):
    """A linear map and the `Nonlinearity` after it.

    Args:
        linear: the linear map.
        width: the number of units.
        style: normalizers, activation and dropout.
        rngs: the random streams.
    """

    def __init__(self, linear: nnx.Module, width: int, style: Style, rngs: nnx.Rngs):
        self.linear = linear
        super().__init__(width, style, rngs)

    def __call__(self, x: Float[Array, "rows ..."]) -> Float[Array, "rows ..."]:
        return super().__call__(self.linear(x))


def dense_block(inputs: int, width: int, style: Style, rngs: nnx.Rngs) -> Block:
    """Makes a fully connected block."""
    return Block(nnx.Linear(inputs, width, **style.linear_options(rngs)), width, style, rngs)


def dense_blocks(widths: Sequence[int], style: Style, rngs: nnx.Rngs) -> list[Block]:
    """Makes fully connected blocks, each from a width to the next."""
    return [dense_block(*pair, style, rngs) for pair in itertools.pairwise(widths)]


def conv_block(
    inputs: int,
    width: int,
    style: Style,
    rngs: nnx.Rngs,
    size: int = 3,
    padding: int | None = None,
    stride: int = 1,
) -> Block:
    """Makes a block of a ``size`` x ``size`` convolution; zero padding keeps sides by default."""
    around: str | int = "SAME" if padding is None else padding
    options = style.linear_options(rngs)
    linear = nnx.Conv(inputs, width, (size, size), stride, padding=around, **options)
    return Block(linear, width, style, rngs)
