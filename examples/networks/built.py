"""Networks of `whole.py` as pure functions, with batch normalization, GroupNorm or neither."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

import jaxnorm as jn
from examples.networks import cifar, fast_conv
from examples.networks.bottleneck import BottleneckResNet
from examples.networks.densenet import DenseNet
from examples.networks.inception_nnx import Inception
from examples.networks.mbconv import MBConvNet
from examples.networks.mobilenet import MobileNetV2
from examples.networks.residual_unet import PooledResidualUNet, ResidualUNet
from examples.networks.statistics import Estimate, estimate_by, keep
from examples.networks.unet import PixelUNet, UNet


class Form(NamedTuple):
    """A way to compute a network.

    Attributes:
        apply: ``apply(params, state, x, train=...) -> (logits, state)``.
        estimate: batch normalization's statistics anew, or `keep`.
    """

    apply: Callable[..., tuple[jax.Array, Any]]
    estimate: Estimate


class Built(NamedTuple):
    """A network as pure functions.

    Attributes:
        usual: the network as its user writes it.
        fast: with convolutions as products of matrices.
        narrow: in bfloat16, with parameters and logits in float32.
        params: parameters under seed 0.
        state: running statistics.
        draw: ``draw(seed) -> params``, traceable.
    """

    usual: Form
    fast: Form
    narrow: Form
    params: Any
    state: Any
    draw: Callable[[Any], Any]

    def logits(self, params: Any, x: jax.Array) -> jax.Array:
        """Returns the logits in training mode."""
        return self.usual.apply(params, self.state, x, train=True)[0]


class Entry(NamedTuple):
    """A network of the tables.

    Attributes:
        build: ``build(x, classes, norm) -> Built`` with norm "bn", "gn" or "none".
        free: regular expression of the paths of its classifier and of its depthwise kernels.
        has_branches: False without residual branches.
        gates: regular expression of further kernels that no normalization follows, after "|".
    """

    build: Callable[[jax.Array, int, str], Built]
    free: str
    has_branches: bool
    gates: str = ""

    @property
    def head(self) -> str:
        """Regular expression of the path of the classifier."""
        return self.free.split("|")[0]


def groups_of(channels: int) -> int:
    """Returns the number of groups of eight channels, or of the largest divisor below."""
    size = next(size for size in range(min(8, channels), 0, -1) if channels % size == 0)
    return channels // size


def group_norm(batch_norm: nnx.BatchNorm) -> nnx.GroupNorm:
    """Returns the layer in the place of a batch normalization."""
    channels = batch_norm.num_features
    return nnx.GroupNorm(channels, num_groups=groups_of(channels), rngs=nnx.Rngs(0))


def of_nnx(make: Callable[..., nnx.Module], **sizes: Any) -> Callable[..., Built]:
    """Returns the builder of an NNX network, which `replace_batch_norm` edits."""

    def build(x: jax.Array, classes: int, norm: str) -> Built:
        def construct(seed: Any) -> nnx.Module:
            return make(nnx.Rngs(jax.random.key(seed)), x.shape[1:], classes, **sizes)

        model = construct(0)
        if norm == "none":
            model = jn.nnx.replace_batch_norm(model, x[:1])
        elif norm == "gn":
            model = jn.nnx.replace_batch_norm(model, replacement=group_norm)
        _, params, state = jn.nnx.functionalize(model)
        usual, fast, narrow = (
            form_of(each, norm == "bn")
            for each in (model, fast_conv.with_products(model), _in_bfloat16(model))
        )
        narrow = narrow._replace(apply=_to_float32(narrow.apply))

        def draw(seed: Any) -> Any:
            drawn = jn.nnx.functionalize(construct(seed))[1]
            return _with_kernels(params, drawn)

        return Built(usual, fast, narrow, params, state, draw)

    return build


def form_of(model: nnx.Module, batch_norm: bool) -> Form:
    """Returns an NNX network as pure functions."""

    def estimate(params: Any, state: Any, x: jax.Array, size: int) -> Any:
        return jn.nnx.estimate_statistics(model, params, state, x, batch_size=size)

    return Form(jn.nnx.functionalize(model)[0], estimate if batch_norm else keep)


def _in_bfloat16(model: nnx.Module) -> nnx.Module:
    """Returns a copy whose layers compute in bfloat16."""
    model = nnx.clone(model)
    for _, module in nnx.iter_modules(model):
        if hasattr(module, "dtype"):
            module.dtype = jnp.bfloat16
    return model


def _to_float32(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with logits in float32."""

    def applied(params: Any, state: Any, x: jax.Array, train: bool) -> tuple[jax.Array, Any]:
        logits, state = apply(params, state, x, train=train)
        return logits.astype(jnp.float32), state

    return applied


def _with_kernels(params: Any, drawn: Any) -> Any:
    """Returns ``params`` with those leaves of ``drawn`` that are random: its kernels."""
    kernels = {
        path: leaf for path, leaf in jax.tree_util.tree_leaves_with_path(drawn) if leaf.ndim > 1
    }
    # The sum makes constants values of the program, as drawn kernels are.
    of = lambda path, x: kernels[path] if path in kernels else x + jnp.zeros_like(x)  # noqa: E731
    return jax.tree_util.tree_map_with_path(of, params)


class LinenGroupNorm(nn.Module):
    """GroupNorm of `groups_of`, which takes the options of the normalization in its place."""

    scale_init: Any = nn.initializers.ones_init()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns normalized activations."""
        groups = groups_of(x.shape[-1])
        return nn.GroupNorm(num_groups=groups, scale_init=self.scale_init)(x)


def bottleneck(width: int) -> Callable[..., Built]:
    """Returns the builder of the Linen network. The last scales start at 1, not at 0."""

    def build(x: jax.Array, classes: int, norm: str) -> Built:
        make = partial(
            BottleneckResNet,
            classes,
            width=width,
            batch_norm=norm != "none",
            make_norm=LinenGroupNorm if norm == "gn" else None,
            last_scale=1.0,
        )
        model, as_products = make(), partial(nn.Conv, conv_general_dilated=fast_conv.conv)
        variables = dict(jax.jit(model.init)(jax.random.key(0), x[:1]))
        params = variables.pop("params")

        def form(**options: Any) -> Form:
            forgetful = of_linen(make(momentum=0.0, **options), norm == "bn")
            estimate = estimate_by(forgetful) if norm == "bn" else keep
            return Form(of_linen(make(**options), norm == "bn"), estimate)

        draw = lambda seed: model.init(jax.random.key(seed), x[:1])["params"]  # noqa: E731
        narrow = form(dtype=jnp.bfloat16)
        narrow = narrow._replace(apply=_to_float32(narrow.apply))
        return Built(form(), form(make_conv=as_products), narrow, params, variables, draw)

    return build


def of_linen(model: nn.Module, batch_norm: bool) -> Callable[..., tuple[jax.Array, Any]]:
    """Returns a Linen network as a pure function of its parameters and running statistics."""

    def apply(params: Any, state: Any, x: jax.Array, train: bool) -> tuple[jax.Array, Any]:
        variables = {"params": params, **state}
        if train and batch_norm:
            return model.apply(variables, x, train=True, mutable=["batch_stats"])
        return model.apply(variables, x, train=train), state

    return apply


#: First stages of 16 channels or more.
SMALL: Mapping[str, Entry] = {
    "MobileNetV2": Entry(of_nnx(MobileNetV2, width=16), "^classifier/|/depthwise/", True),
    "bottleneck ResNet": Entry(bottleneck(8), "^head/", True),
    "DenseNet": Entry(of_nnx(DenseNet, growth=8), "^classifier/", False),
    "Inception": Entry(of_nnx(Inception, width=8), "^logits/", False),
    "U-Net": Entry(of_nnx(UNet, width=16), "^out/", False),
    "gated MBConv": Entry(of_nnx(MBConvNet, width=16), "^classifier/|/depthwise/", True, "|/gate/"),
    "residual U-Net": Entry(of_nnx(PooledResidualUNet, width=16), "^out/", True),
}

#: Standard widths, for photographs of 32 x 32 pixels.
STANDARD: Mapping[str, Entry] = {
    "ResNet-18": Entry(of_nnx(cifar.wide_resnet18), "^head/", True),
    "ResNet-50": Entry(of_nnx(cifar.BottleneckNet), "^head/", True),
    "VGG16": Entry(of_nnx(cifar.vgg16), "^head/", False),
    "MobileNetV2 1.0": Entry(of_nnx(cifar.WideMobileNetV2), "^classifier/|depthwise/", True),
    "ShuffleNetV2": Entry(of_nnx(cifar.ShuffleNetV2), "^classifier/|depthwise/", False),
}

#: Networks with logits per pixel.
SEGMENTATION: Mapping[str, Entry] = {
    "U-Net, pixels": Entry(of_nnx(PixelUNet, width=16), "^out/", False),
    "residual U-Net, pixels": Entry(of_nnx(ResidualUNet, width=16), "^out/", True),
}

ENTRIES: Mapping[str, Entry] = {**SMALL, **STANDARD, **SEGMENTATION}
