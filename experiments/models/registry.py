"""Networks by name."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array

from experiments.errors import UserError, unknown
from experiments.models.activations import ACTIVATIONS
from experiments.models.cnn4 import CNN4
from experiments.models.cnn9 import CNN9
from experiments.models.dgcnn import DGCNN
from experiments.models.elu11 import ELU11
from experiments.models.mlp import MLP
from experiments.models.nin import NIN
from experiments.models.noisy_scales import PRE_ACTIVATION, count_places, noisy_scales
from experiments.models.norms import MakeNorm, maker
from experiments.models.resnet18 import resnet18
from experiments.models.resnet50 import ResNet50
from experiments.models.resnet110 import ResNet110
from experiments.models.style import Activation, Style
from experiments.models.vgg19 import VGG19
from experiments.models.wrn28x10 import wrn28x10
from jaxnorm.activations import standardized

#: The smallest side of an image that cnn9's two poolings leave something of.
CNN9_SIDE = 4

#: The name of every network's classifier, which methods leave unconstrained.
HEAD = "head"


class ModelSettings(NamedTuple):
    """Which network, and how large; each network reads the sizes that it has.

    Attributes:
        name: a key of `MODELS`, or "" for one that follows the data; see `on`.
        activation: a key of `ACTIVATIONS`.
        depth: the hidden layers of the mlp.
        width: the units of each.
        channels: the channels of a convolutional network's first stage, of 64 in the papers.
        groups: the parts of the batch that batch normalization sees apart (ghost batches).
        alpha_dropout: the rate of alpha dropout after each activation.
        head_dropout: the rate of dropout before the classifier of the mlp.
        norm_at: the one layer of cnn4, counted from 1, that is normalized; 0 for all.
    """

    name: str = "mlp"
    activation: str = "relu"
    depth: int = 3
    width: int = 256
    channels: int = 64
    groups: int = 1
    alpha_dropout: float = 0.0
    head_dropout: float = 0.0
    norm_at: int = 0

    def on(self, shape: Sequence[int]) -> "ModelSettings":
        """With the network named that inputs of this shape suggest, if none is."""
        if self.name:
            return self
        images = len(shape) == 3 and min(shape[:2]) >= CNN9_SIDE
        return self._replace(name="cnn9" if images else "dgcnn" if len(shape) == 2 else "mlp")


#: ``(settings, shape, num_classes, style=, rngs=) -> module``.
Builder = Callable[..., nnx.Module]


def _mlp(
    settings: ModelSettings, shape: Sequence[int], num_classes: int, **rest: Any
) -> nnx.Module:
    return MLP(shape, num_classes, depth=settings.depth, width=settings.width, **rest)


def _sigmoid50(
    settings: ModelSettings, shape: Sequence[int], num_classes: int, style: Style, rngs: nnx.Rngs
) -> nnx.Module:
    del settings
    style = style._replace(activation=jax.nn.sigmoid)
    return MLP(shape, num_classes, depth=50, width=256, style=style, rngs=rngs)


def _images(make: Builder, name: str, side: int) -> Builder:
    """The builder of a network for images with sides of at least ``side`` pixels."""

    def builder(
        settings: ModelSettings, shape: Sequence[int], num_classes: int, **rest: Any
    ) -> nnx.Module:
        if len(shape) != 3 or min(shape[:2]) < side:
            raise UserError(
                f"{name} needs images of at least {side} x {side} pixels and got rows of shape "
                f"{tuple(shape)}; take --model mlp, or a dataset of images."
            )
        return make(shape, num_classes, channels=settings.channels, **rest)

    return builder


def _dgcnn(
    settings: ModelSettings, shape: Sequence[int], num_classes: int, **rest: Any
) -> nnx.Module:
    if len(shape) != 2:
        raise UserError(
            f"dgcnn needs point clouds and got rows of shape {tuple(shape)}; wanted (points, "
            "coordinates)."
        )
    return DGCNN(shape, num_classes, channels=settings.channels, **rest)


MODELS: Mapping[str, Builder] = MappingProxyType(
    {
        "mlp": _mlp,
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
    }
)


class Noise(NamedTuple):
    """Noise on the scales of a network whose normalizers are `jaxnorm.nnx.ScaleAndBias` layers.

    Attributes:
        stddev: sigma.
        grows: whether it is that of the last layer, and layer l of L has l / L of it.
    """

    stddev: float = 0.0
    grows: bool = False


class NormalizedInput(nnx.Module):
    """A network whose input is normalized by a layer first: each feature of it is a unit.

    Args:
        norm: of as many units as one input has features.
        network: what follows.
    """

    def __init__(self, norm: nnx.Module, network: nnx.Module):
        self.norm, self.network = norm, network

    def __call__(self, x: Array) -> Array:
        return self.network(self.norm(x.reshape(len(x), -1)).reshape(x.shape))


@functools.cache
def _activation(name: str, standardize: bool) -> Activation:
    """An activation by name; the same function at each call, since its moments take a moment."""
    return standardized(ACTIVATIONS[name]) if standardize else ACTIVATIONS[name]


class NetworkStyle(NamedTuple):
    """How a network is normalized and activated, by names.

    Attributes:
        activation: a key of `ACTIVATIONS`.
        norm: a key of `NORMS` for the layer before each activation, or None.
        post_norm: likewise, after each activation.
        input_norm: likewise, for the layer that normalizes the data.
        standardize: whether the activation is standardized under a Gaussian.
        dropout: the rate at which activations are dropped.
        scale_layers: the noise of scale-and-bias layers in the place of ``norm``, or None.
        pre_activation: whether normalizers stand before a branch, and not after each kernel.
    """

    activation: str
    norm: str | None = None
    post_norm: str | None = None
    input_norm: str | None = None
    standardize: bool = False
    dropout: float = 0.0
    scale_layers: Noise | None = None
    pre_activation: bool = False


def plain_style(settings: ModelSettings) -> NetworkStyle:
    """The style of a network that nothing normalizes."""
    return NetworkStyle(settings.activation, pre_activation=settings.name in PRE_ACTIVATION)


def build(
    settings: ModelSettings,
    shape: Sequence[int],
    num_classes: int,
    rngs: nnx.Rngs,
    **wanted: Any,
) -> nnx.Module:
    """The network that the settings name.

    Args:
        settings: name and sizes.
        shape: the shape of one input.
        num_classes: the number of outputs.
        rngs: the random streams of the initial parameters.
        **wanted: fields of `NetworkStyle` in which it is not plain.
    """
    if settings.name not in MODELS:
        raise unknown("model", settings.name, MODELS)
    named = plain_style(settings)._replace(**wanted)
    if named.activation not in ACTIVATIONS:
        raise unknown("activation", named.activation, ACTIVATIONS)
    style = Style(
        maker(named.norm, settings.groups),
        _activation(named.activation, named.standardize),
        maker(named.post_norm, settings.groups),
        named.dropout,
        settings.alpha_dropout,
        settings.head_dropout,
        settings.norm_at,
    )

    def with_norm(norm: MakeNorm | None, rngs: nnx.Rngs) -> nnx.Module:
        styled = style._replace(norm=norm)
        return MODELS[settings.name](settings, shape, num_classes, style=styled, rngs=rngs)

    if named.scale_layers is None:
        network = with_norm(style.norm, rngs)
    else:
        stddev, grows = named.scale_layers
        places = count_places(lambda make: with_norm(make, nnx.Rngs(0))) if grows else None
        network = with_norm(noisy_scales(stddev, places), rngs)
    make_input_norm = maker(named.input_norm, settings.groups)
    if make_input_norm is None:
        return network
    return NormalizedInput(make_input_norm(math.prod(shape), rngs), network)
