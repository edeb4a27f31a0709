"""Models with names of their own libraries' making, and what their layers compute."""

import functools
import itertools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxnorm.nnx import functionalize

DEPTH, WIDTH = 20, 64


def sigmoid(x: Any) -> Any:
    """Of floats, not of arrays of a library: JAX's and NumPy's have the same ``tanh``."""
    tanh = np.tanh if isinstance(x, np.ndarray) else jnp.tanh
    return 0.5 * tanh(0.5 * x) + 0.5


def layers(depth: int = DEPTH, width: int = WIDTH, inputs: int = WIDTH) -> dict[str, Any]:
    """Kernels named so that their alphabetical order, 0 1 10 11 ... 2, is not their own."""
    draw = np.random.default_rng(0)
    sizes = [inputs] + [width] * depth
    kernels = [draw.normal(size=pair) for pair in itertools.pairwise(sizes)]
    biases = [0.1 * draw.normal(size=width) for _ in range(depth)]
    pairs = zip(kernels, biases, strict=True)
    return {
        f"layer_{i}": {"kernel": jnp.asarray(w, jnp.float32), "bias": jnp.asarray(b, jnp.float32)}
        for i, (w, b) in enumerate(pairs)
    }


def mlp(params: Any, x: Any) -> Any:
    """A sigmoid MLP with biases; the last layer is sigmoid too, which changes nothing here."""
    for number in range(len(params)):
        layer = params[f"layer_{number}"]
        x = sigmoid(x @ layer["kernel"] + layer["bias"][None])
    return x


def preactivations(params: Any, x: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """``(w'x, w'x + b)`` of every layer of `mlp`, in float64 NumPy."""
    result, x = [], np.asarray(x, np.float64)
    for number in range(len(params)):
        layer = params[f"layer_{number}"]
        product = x @ np.asarray(layer["kernel"], np.float64)
        shifted = product + np.asarray(layer["bias"], np.float64)
        result.append((product, shifted))
        x = 1 / (1 + np.exp(-shifted))
    return result


def uniform(*shape: int, seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).uniform(size=shape), jnp.float32)


def drawn(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32, *rest: Any) -> jax.Array:
    """An initializer by NumPy: JAX's are compiled once for each shape, which takes longer."""
    del key, rest
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), dtype)


class Sigmoids(nnx.Module):
    """An NNX model whose attributes run in no alphabetical order."""

    def __init__(self, rngs: nnx.Rngs, **kwargs: Any):
        self.zeta = nnx.Linear(32, 24, rngs=rngs, **kwargs)
        self.mid = nnx.Linear(24, 16, rngs=rngs, **kwargs)
        self.alpha = nnx.Linear(16, 8, use_bias=False, rngs=rngs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.alpha(nnx.sigmoid(self.mid(nnx.sigmoid(self.zeta(x)))))


class Convolutions(nnx.Module):
    """A convolution, batch normalization, a grouped convolution, dropout, a dense layer."""

    def __init__(self, rngs: nnx.Rngs, **kwargs: Any):
        self.stem = nnx.Conv(3, 8, (3, 3), rngs=rngs, **kwargs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.grouped = nnx.Conv(
            8, 12, (3, 3), feature_group_count=4, strides=2, rngs=rngs, **kwargs
        )
        self.drop = nnx.Dropout(0.3, rngs=rngs)
        self.classify = nnx.Linear(12, 5, rngs=rngs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm(self.stem(x)))
        return self.classify(self.drop(nnx.relu(self.grouped(x))).mean((1, 2)))


@functools.cache
def convolutions() -> Convolutions:
    """One for all tests, which leave it as it is: making it compiles."""
    return Convolutions(nnx.Rngs(0), kernel_init=drawn)


@functools.cache
def attention() -> nnx.MultiHeadAttention:
    return nnx.MultiHeadAttention(2, 8, decode=False, kernel_init=drawn, rngs=nnx.Rngs(0))


@functools.cache
def sigmoids() -> Sigmoids:
    return Sigmoids(nnx.Rngs(0), kernel_init=drawn)


class LinenModel(nn.Module):
    """A Linen model with remat, whose second layer is named before the first."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(8, (3, 3), name="z_first")(x))
        x = nn.relu(nn.remat(nn.Conv)(6, (3, 3), name="a_second")(x))
        return nn.Dense(5, name="m_last")(x.mean((1, 2)))


def apply_of(model: nnx.Module) -> tuple[Any, Any]:
    """A function of parameters and input, and the parameters."""
    functional = functionalize(model)

    def apply(params: Any, x: jax.Array) -> jax.Array:
        output: jax.Array = functional.apply(params, functional.state, x, train=True)[0]
        return output

    return apply, functional.params


def outputs_by_path(model: nnx.Module, params: Any, x: jax.Array) -> dict[str, np.ndarray]:
    """What each layer of an NNX model computes without its bias, in execution order."""
    order: list[str] = []
    graph, _, rest = nnx.split(model, nnx.Param, ...)

    @jax.jit
    def run(params: Any, x: jax.Array) -> dict[str, jax.Array]:
        bound = nnx.merge(graph, nnx.State(params), rest, copy=True)
        found: dict[str, jax.Array] = {}
        for path, module in nnx.iter_modules(bound):
            if hasattr(module, "kernel"):
                _record(module, "/".join(map(str, path)), found)
        bound(x)
        order.extend(found)
        return found

    found = run(params, x)
    return {path: np.asarray(found[path], np.float64) for path in order}


def _record(module: Any, path: str, found: dict[str, jax.Array]) -> None:
    """Makes one module note its output, in float32 as it computes it."""
    kind = type(module)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = kind.__call__(self, *args, **kwargs)
        bias = 0.0 if self.bias is None else self.bias[...].astype(jnp.float32)
        found[path] = output.astype(jnp.float32) - jnp.broadcast_to(bias, output.shape)
        return output

    module.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def linen_params(model: nn.Module, x: jax.Array) -> Any:
    """Random parameters of the model's shapes; its own initializers would take long to compile."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)["params"]
    draw = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=leaf.shape), leaf.dtype), shapes)


def linen_outputs(model: nn.Module, params: Any, x: jax.Array) -> dict[str, np.ndarray]:
    """What each layer of a Linen model computes, with its bias, by Linen's own capture."""
    run = jax.jit(lambda p, x: model.apply({"params": p}, x, capture_intermediates=True)[1])
    seen = run(params, x)["intermediates"]
    return {name: np.asarray(seen[name]["__call__"][0], np.float64) for name in params}
