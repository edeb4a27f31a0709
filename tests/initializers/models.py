"""Models with names of their own libraries' making, and what their layers compute."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxnorm import Layout, flax_layout, torch_layout
from jaxnorm.nnx import functionalize
from jaxnorm.nnx import layout as nnx_layout

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


class LinenModel(nn.Module):
    """A Linen model with remat, whose second layer is named before the first."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(8, (3, 3), name="z_first")(x))
        x = nn.relu(nn.remat(nn.Conv)(6, (3, 3), name="a_second")(x))
        return nn.Dense(5, name="m_last")(x.mean((1, 2)))


class Network(NamedTuple):
    """A model, and what its layers compute, found without a trace.

    Attributes:
        apply: of parameters and ``x``.
        params: random ones.
        x: a minibatch.
        names: of the layers.
        products: each layer's w'x and its bias, or None, of parameters.
        layout: which leaves are kernels.
    """

    apply: Callable[..., Any]
    params: Any
    x: jax.Array
    names: tuple[str, ...]
    products: Callable[[Any], dict[str, tuple[np.ndarray, Any]]]
    layout: Layout = flax_layout


def of_nnx(make: Callable[..., Any], x: jax.Array, *names: str, **options: Any) -> Network:
    """Each layer notes what it computes, in float32."""
    model = make(rngs=nnx.Rngs(0), kernel_init=drawn, **options)
    functional = functionalize(model)

    def apply(params: Any, x: jax.Array) -> Any:
        return functional.apply(params, functional.state, x, train=True)[0]

    def products(params: Any) -> dict[str, tuple[np.ndarray, Any]]:
        bound = nnx.clone(model)
        nnx.update(bound, nnx.State(params))
        found: dict[str, tuple[np.ndarray, Any]] = {}
        for path, module in nnx.iter_modules(bound):
            if hasattr(module, "kernel"):
                _record(module, "/".join(map(str, path)), found)
        bound(x)
        return found

    return Network(apply, functional.params, x, names, products, nnx_layout(model))


def _record(module: Any, path: str, found: dict[str, tuple[np.ndarray, Any]]) -> None:
    kind = type(module)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = kind.__call__(self, *args, **kwargs)
        bias = None if self.bias is None else np.asarray(self.bias[...], np.float64)
        found[path] = np.asarray(output, np.float64) - (0 if bias is None else bias), bias
        return output

    module.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def of_linen() -> Network:
    """By Linen's own capture."""
    model, x = LinenModel(), uniform(8, 6, 6, 3)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)["params"]
    params = jax.tree.map(lambda leaf: drawn(None, leaf.shape, leaf.dtype), shapes)

    def products(params: Any) -> dict[str, tuple[np.ndarray, Any]]:
        run = jax.jit(lambda p: model.apply({"params": p}, x, capture_intermediates=True)[1])
        seen = run(params)["intermediates"]
        biases = {name: np.asarray(layer["bias"], np.float64) for name, layer in params.items()}
        found = {name: np.asarray(seen[name]["__call__"][0], np.float64) for name in params}
        return {name: (found[name] - biases[name], biases[name]) for name in params}

    names = "z_first", "a_second", "m_last"
    return Network(lambda p, x: model.apply({"params": p}, x), params, x, names, products)


class Convolved(eqx.Module):
    """Equinox's convolutions, whose biases are (out, 1, 1) and (out, 1); of one sample."""

    wide: eqx.nn.Conv2d
    grouped: eqx.nn.Conv2d
    narrow: eqx.nn.Conv1d
    head: eqx.nn.Linear

    def __init__(self) -> None:
        keys = jax.random.split(jax.random.key(0), 4)
        self.wide = eqx.nn.Conv2d(3, 8, 3, key=keys[0])
        self.grouped = eqx.nn.Conv2d(8, 4, 3, groups=2, key=keys[1])
        self.narrow = eqx.nn.Conv1d(4, 6, 2, key=keys[2])
        self.head = eqx.nn.Linear(6, 5, key=keys[3])

    def __call__(self, x: jax.Array) -> tuple[jax.Array, ...]:
        """The pre-activations of every layer."""
        wide = self.wide(x)
        grouped = self.grouped(jnp.tanh(wide))
        narrow = self.narrow(jnp.tanh(grouped).reshape(4, -1))
        return wide, grouped, narrow, self.head(jnp.tanh(narrow).mean(-1))


def of_equinox() -> Network:
    """Its layers' outputs are the model's own."""
    params, static = eqx.partition(Convolved(), eqx.is_array)
    # Biases of size one, as the model must not add the old ones to the new.
    params, x = jax.tree.map(lambda leaf: leaf + 1, params), uniform(16, 3, 6, 6)
    names = "wide", "grouped", "narrow", "head"
    apply = lambda p, x: jax.vmap(eqx.combine(p, static))(x)  # noqa: E731

    def products(params: Any) -> dict[str, tuple[np.ndarray, Any]]:
        found = {}
        for name, output in zip(names, apply(params, x), strict=True):
            bias = np.asarray(getattr(params, name).bias, np.float64).ravel()
            found[name] = np.moveaxis(np.asarray(output, np.float64), 1, -1) - bias, bias
        return found

    return Network(apply, params, x, names, products, torch_layout)


def attention(**options: Any) -> nnx.MultiHeadAttention:
    return nnx.MultiHeadAttention(2, 8, decode=False, **options)


NETWORKS: dict[str, Callable[[], Network]] = {
    "nnx sigmoids": lambda: of_nnx(Sigmoids, uniform(40, 32), "zeta", "mid", "alpha"),
    "nnx convolutions": lambda: of_nnx(
        Convolutions, uniform(8, 6, 6, 3), "stem", "grouped", "classify"
    ),
    "nnx attention": lambda: of_nnx(attention, uniform(16, 5, 8), "query", "key", "value", "out"),
    "linen with remat": of_linen,
    "equinox convolutions": of_equinox,
}
