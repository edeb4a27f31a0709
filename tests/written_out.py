"""Batch normalization's training written out: networks as functions of a hook, and the method.

``network(layer, x)`` returns logits; ``layer(name, x, kind)`` returns the pre-activations of one
layer. What it does with the layer is up to the method: batch normalization, a plain kernel and
bias, or a kernel kept by slow averages.

The parameters are batch normalization's: per layer a kernel V, scales γ and biases β. With slow
averages μ and σ² of the units' V x, the network has the kernels γ V / σ and the biases β - γ μ / σ.
With ŷ = (V x - μ) / σ and δ its gradient, batch normalization replaces δ by δ - mean(δ) -
ŷ mean(δ ŷ), of the examples of the step, which standardize ŷ. If μ and σ² are those of the same
examples, this is batch normalization to rounding. γ stands behind the product here, and the
averages apart from the parameters; `jaxnorm.moving_average_normalization` has both in the kernel.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

CLASSES = 3
EPSILON = 1e-5
stop = jax.lax.stop_gradient


class Kind(NamedTuple):
    """Shape of a layer; classifiers and gates are not normalized."""

    units: int
    window: int = 1
    stride: int = 1
    depthwise: bool = False
    normalized: bool = True


class Moments(NamedTuple):
    """Mean and variance of a layer's V x per unit."""

    mean: jax.Array
    var: jax.Array


Layer = Callable[[str, jax.Array, Kind], jax.Array]
Network = Callable[[Layer, jax.Array], jax.Array]
Params = dict[str, dict[str, jax.Array]]


def product(x: jax.Array, kernel: jax.Array, kind: Kind) -> jax.Array:
    """Returns the layer's product."""
    if x.ndim == 2:
        return x @ kernel.reshape(kernel.shape[2:])
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (kind.stride,) * 2,
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] if kind.depthwise else 1,
    )


def along(vector: jax.Array, y: jax.Array) -> jax.Array:
    """Returns one number per unit, in the shape that meets ``y``."""
    return vector.reshape((1,) * (y.ndim - 1) + (-1,))


def over_examples(y: jax.Array) -> jax.Array:
    """Returns means over examples and positions."""
    return y.mean(tuple(range(y.ndim - 1)), keepdims=True)


def plain(network: Network, params: Params, x: jax.Array) -> jax.Array:
    """Returns the logits of the network of kernels and biases alone."""

    def layer(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        y = product(x, params[name]["kernel"], kind)
        return y + along(params[name]["bias"], y)

    return network(layer, x)


def normalized(network: Network, params: Params, standardize: Layer, x: jax.Array) -> jax.Array:
    """Returns the logits; ``standardize(name, x, kind)`` returns ŷ, before its scale and bias."""

    def layer(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        leaf = params[name]
        if not kind.normalized:
            y = product(x, leaf["kernel"], kind)
            return y + along(leaf["bias"], y)
        y = standardize(name, x, kind)
        return along(leaf["scale"], y) * y + along(leaf["bias"], y)

    return network(layer, x)


def drawn(network: Network, key: jax.Array, x: jax.Array) -> Params:
    """Returns random kernels, scales of 1 and biases of 0."""
    params: Params = {}
    draw = jax.nn.initializers.lecun_normal()

    def layer(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        inputs, units = (1, x.shape[-1]) if kind.depthwise else (x.shape[-1], kind.units)
        of_layer = jax.random.fold_in(key, len(params))
        kernel = draw(of_layer, (kind.window, kind.window, inputs, units), x.dtype)
        params[name] = {"kernel": kernel, "bias": jnp.zeros(units, x.dtype)}
        if kind.normalized:
            params[name]["scale"] = jnp.ones(units, x.dtype)
        return product(x, kernel, kind)

    network(layer, x)
    return params


def batch_normalized(
    network: Network, params: Params, x: jax.Array
) -> tuple[jax.Array, dict[str, Moments]]:
    """Returns the logits under batch normalization, and the moments of the batch by layer."""
    measured = {}

    def standardize(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        y = product(x, params[name]["kernel"], kind)
        mean = over_examples(y)
        var = over_examples((y - mean) ** 2)
        measured[name] = Moments(stop(mean.ravel()), stop(var.ravel()))
        return (y - mean) * jax.lax.rsqrt(var + EPSILON)

    return normalized(network, params, standardize, x), measured


@jax.custom_vjp
def projected(y: jax.Array, direction: jax.Array) -> jax.Array:
    """Returns ``y``; its derivative takes mean and ``direction`` out of the gradient."""
    del direction
    return y


def _backward(direction: jax.Array, delta: jax.Array) -> tuple[jax.Array, None]:
    moment = over_examples(delta * direction)
    return delta - over_examples(delta) - direction * moment, None


projected.defvjp(lambda y, direction: (y, direction), _backward)


def kept(
    network: Network, params: Params, averages: dict[str, Moments], x: jax.Array
) -> tuple[jax.Array, dict[str, Moments]]:
    """Returns the logits of kernels kept by averages, and the moments of these examples."""
    measured = {}

    def standardize(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        kernel, average = params[name]["kernel"], averages[name]
        std = jnp.sqrt(average.var + EPSILON)
        y = product(x, kernel / along(std, kernel), kind)
        y = y - along(average.mean / std, y)
        mean = over_examples(stop(y))
        var = over_examples((stop(y) - mean) ** 2)
        measured[name] = Moments(average.mean + std * mean.ravel(), std**2 * var.ravel())
        direction = (stop(y) - mean) * jax.lax.rsqrt(var + along(EPSILON / std**2, y))
        return projected(y, direction)

    return normalized(network, params, standardize, x), measured


def moved(average: Moments, found: Moments, decay: float = 0.9) -> Moments:
    """Returns the averages after a step that found these moments."""
    return Moments(*(decay * a + (1 - decay) * b for a, b in zip(average, found, strict=True)))


def folded(params: Params, averages: dict[str, Moments]) -> Params:
    """Returns the kernels and biases of the plain network."""
    result = dict(params)
    for name, average in averages.items():
        kernel, bias, scale = (params[name][part] for part in ("kernel", "bias", "scale"))
        factor = scale * jax.lax.rsqrt(average.var + EPSILON)
        bias = bias - factor * average.mean
        result[name] = {"kernel": kernel * along(factor, kernel), "bias": bias}
    return result


def zero_sums(params: Params) -> Params:
    """Returns parameters whose kernels of normalized layers of several inputs have zero sums."""

    def centered(leaf: dict[str, jax.Array]) -> dict[str, jax.Array]:
        kernel = leaf["kernel"]
        if "scale" not in leaf or kernel.shape[2] == 1:
            return leaf
        return leaf | {"kernel": kernel - kernel.mean((0, 1, 2), keepdims=True)}

    return {name: centered(leaf) for name, leaf in params.items()}


def without_scales(params: Params) -> Params:
    """Returns kernels and biases alone."""
    return {
        name: {part: leaf[part] for part in ("kernel", "bias")} for name, leaf in params.items()
    }


def chain(layer: Layer, x: jax.Array, width: int = 4) -> jax.Array:
    """Three convolutions and a classifier."""
    for name, stride in (("first", 1), ("second", 2), ("third", 1)):
        x = jax.nn.relu(layer(name, x, Kind(width, 3, stride)))
    return layer("classifier", x.mean((1, 2)), Kind(CLASSES, normalized=False))


def residual(layer: Layer, x: jax.Array, width: int = 4) -> jax.Array:
    """Two residual blocks of two convolutions."""
    x = jax.nn.relu(layer("stem", x, Kind(width, 3)))
    for block in ("block 0", "block 1"):
        y = jax.nn.relu(layer(f"{block}/first", x, Kind(width, 3)))
        x = jax.nn.relu(x + layer(f"{block}/second", y, Kind(width, 3)))
    return layer("classifier", x.mean((1, 2)), Kind(CLASSES, normalized=False))


def bottleneck(layer: Layer, x: jax.Array, width: int = 4) -> jax.Array:
    """ResNet with three stages of two bottleneck blocks."""
    x = jax.nn.relu(layer("stem", x, Kind(width, 3)))
    for index in range(6):
        name, units = f"blocks/{index}", width * 2 ** (index // 2)
        stride = 2 if index in (2, 4) else 1
        y = jax.nn.relu(layer(f"{name}/first", x, Kind(units)))
        y = jax.nn.relu(layer(f"{name}/second", y, Kind(units, 3, stride)))
        y = layer(f"{name}/third", y, Kind(4 * units))
        if x.shape != y.shape:
            x = layer(f"{name}/shortcut", x, Kind(4 * units, 1, stride))
        x = jax.nn.relu(x + y)
    return layer("classifier", x.mean((1, 2)), Kind(CLASSES, normalized=False))


def mobilenet(layer: Layer, x: jax.Array, width: int = 4, blocks: int = 3) -> jax.Array:
    """MobileNetV2, as `examples/networks/mobilenet.py`: inverted residuals, depthwise kernels."""
    return _inverted(layer, x, width, blocks, jax.nn.relu6)


def mbconv(layer: Layer, x: jax.Array, width: int = 4, blocks: int = 3) -> jax.Array:
    """Gated mobile blocks, as `examples/networks/mbconv.py`: swish and squeeze-and-excitation."""
    return _inverted(layer, x, width, blocks, jax.nn.swish)


def _inverted(layer: Layer, x: jax.Array, width: int, blocks: int, activation: Any) -> jax.Array:
    gated = activation is jax.nn.swish
    x = activation(layer("stem", x, Kind(width, 3)))
    for index in range(blocks):
        name, inputs, units = f"blocks/{index}", x.shape[-1], width * (index // 2 + 1)
        stride = 2 if index in (2, 4) else 1
        window = 5 if gated and index in (2, 3) else 3
        y = activation(layer(f"{name}/expand", x, Kind(4 * inputs)))
        y = activation(layer(f"{name}/depthwise", y, Kind(0, window, stride, depthwise=True)))
        if gated:
            y = y * _gate(layer, f"{name}/gate", y, max(1, inputs // 4))
        y = layer(f"{name}/project", y, Kind(units))
        x = x + y if x.shape == y.shape else y
    x = activation(layer("last", x, Kind(8 * width)))
    return layer("classifier", x.mean((1, 2)), Kind(CLASSES, normalized=False))


def _gate(layer: Layer, name: str, x: jax.Array, squeezed: int) -> jax.Array:
    """Returns a factor per sample and channel."""
    y = layer(f"{name}/squeeze", x.mean((1, 2)), Kind(squeezed, normalized=False))
    y = layer(f"{name}/excite", jax.nn.swish(y), Kind(x.shape[-1], normalized=False))
    return jax.nn.sigmoid(y)[:, None, None]


def branching(layer: Layer, x: jax.Array) -> jax.Array:
    """Two branches, one after a second use of the stem's result, and a concatenation."""
    x = jax.nn.relu(layer("stem", x, Kind(4, 3)))
    a = jax.nn.relu(layer("left", x, Kind(4)))
    b = jnp.tanh(layer("right", x, Kind(3, 3)) + layer("across", a, Kind(3)))
    x = jax.nn.relu(layer("last", jnp.concatenate([a, b, x], -1), Kind(4)))
    return layer("classifier", x.mean((1, 2)), Kind(CLASSES, normalized=False))


def minibatch(dtype: Any = jnp.float32) -> tuple[jax.Array, jax.Array]:
    """Six images and their labels."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(0.3, 1, (6, 8, 8, 3)), draw.integers(0, CLASSES, 6)
    return jnp.asarray(x, dtype), jnp.asarray(y, jnp.int32)


def parameters(network: Network, x: jax.Array) -> Params:
    """Random parameters of batch normalization; the first scale of each layer is negative."""
    draw = np.random.default_rng(1)
    params = drawn(network, jax.random.key(0), x[:1])
    for leaf in params.values():
        for part in leaf.keys() - {"kernel"}:
            values = draw.normal(part == "scale", 0.3, leaf[part].shape)
            values[0] *= -1 if part == "scale" else 1
            leaf[part] = jnp.asarray(values, x.dtype)
    return params


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the mean loss."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def assert_close(made: Any, wanted: Any, tolerance: float) -> None:
    """Compares each leaf on the scale of the largest entry of its tree."""
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance * size), made, wanted
    )
