"""Networks as plain functions of a hook: ``network(layer, x)`` returns logits.

``layer(name, x, kind)`` returns the pre-activations of one layer. What it does with the layer is up
to the method: batch normalization, a plain kernel and bias, or a kernel kept by slow averages. So
every method trains the same network. `mobilenet`, `mbconv`, `bottleneck` and `unet` are those of
`examples/networks/`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from examples.keeping.products import conv, shifted


class Kind(NamedTuple):
    """Shape of a layer.

    Attributes:
        units: output channels; ignored by depthwise layers.
        window: side of the kernel.
        stride: of the convolution.
        depthwise: whether each unit reads one channel.
        upsampling: whether each input makes a patch of ``window`` x ``window`` outputs.
        normalized: False for classifiers and gates, which have a bias alone.
    """

    units: int
    window: int = 1
    stride: int = 1
    depthwise: bool = False
    upsampling: bool = False
    normalized: bool = True


Layer = Callable[[str, jax.Array, Kind], jax.Array]
Network = Callable[[Layer, jax.Array], jax.Array]
Params = dict[str, dict[str, jax.Array]]

#: ``act(name, activation, y)`` returns the activations of the layer of that name.
Act = Callable[[str, Callable[[jax.Array], jax.Array], jax.Array], jax.Array]


def product(x: jax.Array, kernel: jax.Array, kind: Kind) -> jax.Array:
    """Returns the layer's product, by products of matrices, which are fast inside of loops."""
    if x.ndim == 2:
        return x @ kernel.reshape(kernel.shape[2:])
    if kind.upsampling:
        patches = jnp.einsum("nhwc,ijco->nhiwjo", x, kernel[::-1, ::-1])
        n, h, i, w, j, o = patches.shape
        return patches.reshape(n, h * i, w * j, o)
    if kind.depthwise:
        taps = shifted(x, kernel.shape[:2], (kind.stride,) * 2, "SAME")
        weights = kernel.reshape(-1, 1, 1, 1, kernel.shape[-1])
        return sum((tap * w for tap, w in zip(taps, weights, strict=True)), jnp.zeros((), x.dtype))
    return conv(x, kernel, (kind.stride,) * 2, "SAME")


def convolution(x: jax.Array, kernel: jax.Array, kind: Kind) -> jax.Array:
    """Returns the layer's product as its user writes it, which the library can read."""
    if x.ndim == 2:
        return x @ kernel.reshape(kernel.shape[2:])
    if kind.upsampling:
        return jax.lax.conv_transpose(x, kernel, (kind.window,) * 2, "SAME")
    groups = x.shape[-1] if kind.depthwise else 1
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (kind.stride,) * 2,
        "SAME",
        dimension_numbers=numbers,
        feature_group_count=groups,
    )


def along(vector: jax.Array, y: jax.Array) -> jax.Array:
    """Returns one number per unit, in the shape that meets ``y``."""
    return vector.reshape((1,) * (y.ndim - 1) + (-1,))


def plain(network: Network, params: Params, x: jax.Array, product: Any = product) -> jax.Array:
    """Returns the logits of the network of kernels and biases alone."""

    def layer(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        y = product(x, params[name]["kernel"], kind)
        return y + along(params[name]["bias"], y)

    return network(layer, x)


def normalized(network: Network, params: Params, standardize: Layer, x: jax.Array) -> jax.Array:
    """Returns the logits; ``standardize(name, x, kind)`` returns ŷ, before its scale and bias.

    Classifiers and gates, which are not normalized, have their product and bias alone.
    """

    def layer(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        leaf = params[name]
        if not kind.normalized:
            y = product(x, leaf["kernel"], kind)
            return y + along(leaf["bias"], y)
        y = standardize(name, x, kind)
        return along(leaf["scale"], y) * y + along(leaf["bias"], y)

    return network(layer, x)


def passed(
    network: Network, params: Params, averages: Any, x: jax.Array, of_layer: Any, s: Any
) -> tuple[jax.Array, dict[str, Any]]:
    """Returns the logits and moments by layer; ``of_layer`` are a layer's ŷ and its moments."""
    (kept, moments), stop = of_layer, jax.lax.stop_gradient
    measured = {}

    def standardize(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        kernel, average = params[name]["kernel"], averages[name]
        y = kept(kernel, average, x, kind, s)
        measured[name] = moments(stop(y), average, stop(x), kernel, kind, s)
        return y

    return normalized(network, params, standardize, x), measured


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


def _plainly(name: str, activation: Any, y: jax.Array) -> jax.Array:
    """Returns the activations."""
    del name
    return activation(y)  # type: ignore[no-any-return]


def chain(layer: Layer, x: jax.Array, classes: int = 10, width: int = 8) -> jax.Array:
    """Three convolutions and a classifier."""
    for name, stride in (("first", 1), ("second", 2), ("third", 1)):
        x = jax.nn.relu(layer(name, x, Kind(width, 3, stride)))
    return layer("classifier", x.mean((1, 2)), Kind(classes, normalized=False))


def residual(
    layer: Layer, x: jax.Array, classes: int = 10, width: int = 8, blocks: int = 2
) -> jax.Array:
    """Residual blocks of two convolutions."""
    x = jax.nn.relu(layer("stem", x, Kind(width, 3)))
    for block in map("block {}".format, range(blocks)):
        y = jax.nn.relu(layer(f"{block}/first", x, Kind(width, 3)))
        x = jax.nn.relu(x + layer(f"{block}/second", y, Kind(width, 3)))
    return layer("classifier", x.mean((1, 2)), Kind(classes, normalized=False))


def mobilenet(
    layer: Layer,
    x: jax.Array,
    classes: int = 10,
    width: int = 16,
    blocks: int = 6,
    act: Act = _plainly,
) -> jax.Array:
    """MobileNetV2: six inverted residuals with depthwise convolutions."""
    return _inverted(layer, x, (classes, width, blocks), jax.nn.relu6, False, act)


def mbconv(
    layer: Layer,
    x: jax.Array,
    classes: int = 10,
    width: int = 16,
    blocks: int = 6,
    act: Act = _plainly,
) -> jax.Array:
    """Gated mobile blocks: swish, and squeeze-and-excitation."""
    return _inverted(layer, x, (classes, width, blocks), jax.nn.swish, True, act)


def _inverted(
    layer: Layer, x: jax.Array, sizes: tuple[int, int, int], activation: Any, gated: bool, act: Act
) -> jax.Array:
    classes, width, blocks = sizes
    active = lambda name, x, kind: act(name, activation, layer(name, x, kind))  # noqa: E731
    x = active("stem", x, Kind(width, 3))
    for index in range(blocks):
        name, inputs, units = f"blocks/{index}", x.shape[-1], width * (index // 2 + 1)
        stride = 2 if index in (2, 4) else 1
        window = 5 if gated and index in (2, 3) else 3
        y = active(f"{name}/expand", x, Kind(4 * inputs))
        y = active(f"{name}/depthwise", y, Kind(0, window, stride, depthwise=True))
        if gated:
            y = y * _gate(layer, f"{name}/gate", y, max(1, inputs // 4))
        y = layer(f"{name}/project", y, Kind(units))
        x = x + y if x.shape == y.shape else y
    x = active("last", x, Kind(8 * width))
    return layer("classifier", x.mean((1, 2)), Kind(classes, normalized=False))


def _gate(layer: Layer, name: str, x: jax.Array, squeezed: int) -> jax.Array:
    """Returns a factor per sample and channel."""
    y = layer(f"{name}/squeeze", x.mean((1, 2)), Kind(squeezed, normalized=False))
    y = layer(f"{name}/excite", jax.nn.swish(y), Kind(x.shape[-1], normalized=False))
    return jax.nn.sigmoid(y)[:, None, None]


def bottleneck(layer: Layer, x: jax.Array, classes: int = 10, width: int = 8) -> jax.Array:
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
    return layer("classifier", x.mean((1, 2)), Kind(classes, normalized=False))


def unet(layer: Layer, x: jax.Array, classes: int = 10, width: int = 16) -> jax.Array:
    """U-Net with three levels; the mean of the logits of all pixels is classified."""
    fine = _double(layer, "down1", x, width)
    coarse = _double(layer, "down2", _pooled(fine), 2 * width)
    x = _double(layer, "middle", _pooled(coarse), 4 * width)
    up = Kind(2 * width, 2, upsampling=True, normalized=False)
    x = jnp.concatenate([coarse, layer("up2", x, up)], axis=-1)
    x = _double(layer, "merge2", x, 2 * width)
    x = jnp.concatenate([fine, layer("up1", x, up._replace(units=width))], axis=-1)
    x = _double(layer, "merge1", x, width)
    return layer("out", x, Kind(classes, normalized=False)).mean((1, 2))


def _double(layer: Layer, name: str, x: jax.Array, units: int) -> jax.Array:
    """Returns the activations of two convolutions."""
    x = jax.nn.relu(layer(f"{name}/first", x, Kind(units, 3)))
    return jax.nn.relu(layer(f"{name}/second", x, Kind(units, 3)))


def _pooled(x: jax.Array) -> jax.Array:
    """Returns the maxima of 2 x 2 pixels.

    The gradient of a maximum over axes divides by the number of entries that equal it, and may be
    NaN where the compiler computes entries and maximum by two programs that round differently.
    """
    x = jnp.maximum(x[:, ::2], x[:, 1::2])
    return jnp.maximum(x[:, :, ::2], x[:, :, 1::2])


NETWORKS: dict[str, Network] = {
    "MobileNetV2": mobilenet,
    "gated MBConv": mbconv,
    "bottleneck ResNet": bottleneck,
    "U-Net": unet,
}
