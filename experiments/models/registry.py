"""Networks by name."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, PyTree

from experiments.config import AnyConfig, Config
from experiments.errors import UserError, unknown
from experiments.models.convolutional import CNN4, CNN9, ELU11, NIN, VGG19
from experiments.models.dgcnn import DGCNN
from experiments.models.mlp import MLP
from experiments.models.noisy_scales import PRE_ACTIVATION, count_places, noisy_scales
from experiments.models.normalized_transformer import NormalizedTransformer
from experiments.models.norms import MakeNorm, maker
from experiments.models.own_code import is_from_file
from experiments.models.patches import PIXELS, PatchTransformer
from experiments.models.preactivation import resnet18, wrn28x10
from experiments.models.residual import ResNet50, ResNet110
from experiments.models.sizes import NetworkSizes
from experiments.models.style import ACTIVATIONS, Activation, Style
from experiments.models.transformer import Transformer
from experiments.models.unet import UNet
from jaxnorm import read
from jaxnorm.nnx import functionalize
from jaxnorm.normprop import standardized
from jaxnorm.shaping import shaped, traced_depth

#: How an activation is shaped.
Shape = Literal["tat", "dks"]

#: The name of every network's classifier, which methods leave unconstrained.
HEAD = "head"

#: The smallest side of an image that survives cnn9's two poolings.
CNN9_SIDE = 4


#: The networks with logits at each pixel.
OF_PIXELS = ("unet",)


def with_network(
    config: AnyConfig, shape: Sequence[int], has_label_maps: bool = False
) -> AnyConfig:
    """Names the network that inputs of this shape suggest, if none is named."""
    images = len(shape) == 3 and min(shape[:2]) >= CNN9_SIDE
    usual = "cnn9" if images else "dgcnn" if len(shape) == 2 else "mlp"
    usual = "unet" if has_label_maps else usual
    return config if config.model else config.changed(model=usual)


def takes_tokens(model: str) -> bool:
    """Returns True if a model reads sequences of tokens, not rows of numbers."""
    return model.startswith("transformer") and not is_from_file(model)


def check_tokens(model: str, data: str, kind: np.dtype) -> None:
    """Raises UserError if only the data, or only the model, is of tokens.

    Args:
        model: the name of the model.
        data: the name of the dataset.
        kind: the type of a row; tokens are integers.
    """
    has_tokens = np.issubdtype(kind, np.integer)
    if has_tokens and not takes_tokens(model):
        raise UserError(
            f"{data} has sequences of tokens and {model} takes none; wanted --model "
            "transformer, or another --dataset."
        )
    if takes_tokens(model) and not has_tokens:
        raise UserError(
            f"{model} got rows of {data}, which are of numbers; wanted sequences "
            "of tokens: take --dataset python, or another --model."
        )


def check_label_maps(model: str, data: str, has_label_maps: bool) -> None:
    """Raises UserError if only the data, or only the model, has classes of pixels.

    Args:
        model: the name of the model; a file's network is checked when it is called.
        data: the name of the dataset.
        has_label_maps: if True, the data have a label at each pixel.
    """
    if is_from_file(model) or (model in OF_PIXELS) == has_label_maps:
        return
    if has_label_maps:
        raise UserError(
            f"{data} has a label at each pixel and {model} has logits for whole images; wanted "
            "--model unet, or FILE.py:NAME with logits (rows, height, width, classes)."
        )
    raise UserError(
        f"{model} has logits at each pixel and {data} has one label per row; wanted label maps, y "
        "of the shape (rows, height, width) of the images: take --dataset shapes, or another "
        "--model."
    )


Builder = Callable[[NetworkSizes, Style, nnx.Rngs], nnx.Module]


def _sigmoid50(sizes: NetworkSizes, style: Style, rngs: nnx.Rngs) -> nnx.Module:
    style = style._replace(activation=jax.nn.sigmoid)
    return MLP(sizes._replace(depth=50, width=256), style, rngs)


def _images(make: Builder, name: str, side: int) -> Builder:
    """Makes the builder of a network for images with sides of at least ``side`` pixels."""

    def builder(sizes: NetworkSizes, style: Style, rngs: nnx.Rngs) -> nnx.Module:
        if len(sizes.shape) != 3 or min(sizes.shape[:2]) < side:
            raise UserError(
                f"{name} needs images of at least {side} x {side} pixels and got rows of shape "
                f"{sizes.shape}; take --model mlp, or a dataset of images."
            )
        return make(sizes, style, rngs)

    return builder


def _dgcnn(sizes: NetworkSizes, style: Style, rngs: nnx.Rngs) -> nnx.Module:
    if len(sizes.shape) != 2:
        raise UserError(
            f"dgcnn needs point clouds and got rows of shape {sizes.shape}; wanted (points, "
            "coordinates)."
        )
    return DGCNN(sizes, style, rngs)


MODELS: Mapping[str, Builder] = {
    "mlp": MLP,
    "cnn4": _images(CNN4, "cnn4", 2),
    "cnn9": _images(CNN9, "cnn9", CNN9_SIDE),
    "elu11": _images(ELU11, "elu11", 1),
    "nin": _images(NIN, "nin", 20),
    "sigmoid50": _sigmoid50,
    "vgg19": _images(VGG19, "vgg19", 8),
    "resnet18": _images(resnet18, "resnet18", 8),
    "resnet50": _images(ResNet50, "resnet50", 8),
    "resnet110": _images(ResNet110, "resnet110", 4),
    "wrn28x10": _images(wrn28x10, "wrn28x10", 4),
    "dgcnn": _dgcnn,
    "patches": _images(PatchTransformer, "patches", PIXELS),
    "unet": _images(UNet, "unet", 4),
    "transformer": Transformer,
    "transformer-unscaled": functools.partial(Transformer, factor=1.0),
}


class Noise(NamedTuple):
    """Noise on the scales of a network whose normalizers are `jaxnorm.nnx.ScaleAndBias` layers.

    Attributes:
        stddev: sigma.
        grows: whether it is that of the last layer, and layer l of L has l / L of it.
    """

    stddev: float = 0.0
    grows: bool = False


class NormalizedInput(nnx.Module):
    """A network behind a layer that normalizes its input, each feature of which is a unit.

    Args:
        norm: a layer with one unit per feature of the input.
        network: the network.
    """

    def __init__(self, norm: nnx.Module, network: Any):
        self.norm, self.network = norm, network

    def __call__(self, x: Array) -> Array:
        return self.network(self.normalized(x))

    def activations(self, x: Array) -> list[Array]:
        """Returns the hidden layers' outputs, of a network that has the method."""
        return self.network.activations(self.normalized(x))

    def normalized(self, x: Array) -> Array:
        """Normalizes the input."""
        return self.norm(x.reshape(len(x), -1)).reshape(x.shape)


@functools.cache
def _activation(name: str, standardize: bool, preserve_magnitude: bool) -> Activation:
    """Returns an activation by name; cached, because its moments take time."""
    if standardize or preserve_magnitude:
        return standardized(ACTIVATIONS[name], centered=standardize)
    return ACTIVATIONS[name]


@functools.cache
def _shaped(
    config: Config, shape: tuple[int, ...], num_classes: int, name: str, method: Shape
) -> Activation:
    """Returns an activation shaped for the depth of the plain network, read off its program."""
    functional = functionalize(
        nnx.eval_shape(lambda: build(config, shape, num_classes, nnx.Rngs(0)))
    )

    def logits(params: PyTree, state: PyTree, x: Array) -> Array:
        return functional.apply(params, state, x, train=False)[0]

    x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    try:
        depth = traced_depth(read(logits, functional.params, functional.state, x))
        return shaped(ACTIVATIONS[name], depth, method)
    except ValueError as error:
        raise UserError(
            f"{method} cannot shape {name} for {config.model}: {error} Take --activation tanh, or "
            "a deeper network without attention."
        ) from None


class NetworkStyle(NamedTuple):
    """Normalizers and activation of a network, by names.

    Attributes:
        activation: a key of `ACTIVATIONS`.
        norm: a key of `NORMS` for the layer before each activation, or None.
        post_norm: likewise, after each activation.
        input_norm: likewise, for the layer that normalizes the data.
        standardize: whether the activation is standardized under a Gaussian.
        dropout: the rate at which activations are dropped.
        scale_layers: the noise of scale-and-bias layers in the place of ``norm``, or None.
        pre_activation: whether normalizers stand before a branch, and not after each kernel.
        preserve_magnitude: whether activations and the sums of branches keep mean squares at 1.
        shaped: how the activation is shaped for the depth, or None.
        hypersphere: whether tokens stay on the unit sphere: a transformer of another form.
    """

    activation: str
    norm: str | None = None
    post_norm: str | None = None
    input_norm: str | None = None
    standardize: bool = False
    dropout: float = 0.0
    scale_layers: Noise | None = None
    pre_activation: bool = False
    preserve_magnitude: bool = False
    shaped: Shape | None = None
    hypersphere: bool = False


def plain_style(config: Config) -> NetworkStyle:
    """Returns the style of a network without normalization."""
    return NetworkStyle(config.activation, pre_activation=config.model in PRE_ACTIVATION)


def build(
    config: Config, shape: Sequence[int], num_classes: int, rngs: nnx.Rngs, **wanted: Any
) -> nnx.Module:
    """Builds the network that a configuration names.

    Args:
        config: its name and sizes.
        shape: the shape of one input.
        num_classes: the number of outputs.
        rngs: the random streams of the initial parameters.
        **wanted: fields of `NetworkStyle` in which it is not plain.
    """
    if config.model not in MODELS:
        raise unknown("model", config.model, MODELS)
    named = plain_style(config)._replace(**wanted)
    if named.activation not in ACTIVATIONS:
        raise unknown("activation", named.activation, ACTIVATIONS)
    sizes = NetworkSizes(tuple(shape), num_classes, config.depth, config.width, config.channels)
    if named.hypersphere:
        if config.model != "transformer":
            raise UserError(
                f"ngpt is a transformer of its own form and got --model {config.model}; wanted "
                "--model transformer, with --dataset python."
            )
        return NormalizedTransformer(sizes, rngs)
    style = _style(config, named, sizes)

    def with_norm(norm: MakeNorm | None, rngs: nnx.Rngs) -> nnx.Module:
        return MODELS[config.model](sizes, style._replace(norm=norm), rngs)

    norm = style.norm
    if named.scale_layers is not None:
        stddev, grows = named.scale_layers
        places = count_places(lambda make: with_norm(make, nnx.Rngs(0))) if grows else None
        norm = noisy_scales(stddev, places)
    network = with_norm(norm, rngs)
    make_input_norm = maker(named.input_norm, config.ghost_groups)
    if make_input_norm is None:
        return network
    return NormalizedInput(make_input_norm(math.prod(shape), rngs=rngs), network)


def _style(config: Config, named: NetworkStyle, sizes: NetworkSizes) -> Style:
    """Returns the layers that a style names."""
    activation = _activation(named.activation, named.standardize, named.preserve_magnitude)
    if named.shaped is not None:
        wanted = (named.activation, named.shaped)
        activation = _shaped(config, sizes.shape, sizes.num_classes, *wanted)
    return Style(
        maker(named.norm, config.ghost_groups),
        activation,
        maker(named.post_norm, config.ghost_groups),
        named.dropout,
        config.alpha_dropout,
        config.head_dropout,
        config.norm_at,
        named.preserve_magnitude,
        named.shaped is not None,
    )
