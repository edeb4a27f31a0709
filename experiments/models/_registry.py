"""Networks by name."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
from flax import nnx

from experiments._errors import UserError, unknown
from experiments.models._blocks import ACTIVATIONS, Activation
from experiments.models._cnn9 import CNN9
from experiments.models._mlp import MLP
from experiments.models._norms import NORMS
from experiments.models._resnet18 import ResNet18
from experiments.models._vgg19 import VGG19
from jaxnorm.activations import standardized


class ModelSettings(NamedTuple):
    """Which network, and how large; each network reads the sizes that it has."""

    name: str = "mlp"
    activation: str = "relu"
    depth: int = 3
    width: int = 256
    channels: int = 64


#: ``(settings, shape, num_classes, **rest) -> module``.
Builder = Callable[..., nnx.Module]


def _mlp(
    settings: ModelSettings, shape: Sequence[int], num_classes: int, **rest: object
) -> nnx.Module:
    return MLP(shape, num_classes, depth=settings.depth, width=settings.width, **rest)


def _sigmoid50(
    settings: ModelSettings, shape: Sequence[int], num_classes: int, **rest: object
) -> nnx.Module:
    del settings
    return MLP(shape, num_classes, depth=50, width=256, **(rest | {"activation": jax.nn.sigmoid}))


def _images(make: Builder, name: str, side: int) -> Builder:
    """The builder of a network for images with sides of at least ``side`` pixels."""

    def builder(
        settings: ModelSettings, shape: Sequence[int], num_classes: int, **rest: object
    ) -> nnx.Module:
        if len(shape) != 3 or min(shape[:2]) < side:
            raise UserError(
                f"{name} needs images of at least {side} x {side} pixels and got rows of shape "
                f"{tuple(shape)}; take --model mlp, or a dataset of images."
            )
        return make(shape, num_classes, channels=settings.channels, **rest)

    return builder


MODELS: Mapping[str, Builder] = MappingProxyType(
    {
        "mlp": _mlp,
        "cnn9": _images(CNN9, "cnn9", 4),
        "sigmoid50": _sigmoid50,
        "vgg19": _images(VGG19, "vgg19", 8),
        "resnet18": _images(ResNet18, "resnet18", 8),
    }
)


@functools.cache
def _activation(name: str, standardize: bool) -> Activation:
    """An activation by name; the same function at each call, since its moments take a moment."""
    return standardized(ACTIVATIONS[name]) if standardize else ACTIVATIONS[name]


def build(
    settings: ModelSettings,
    shape: Sequence[int],
    num_classes: int,
    norm: str | None,
    activation: str | None,
    rngs: nnx.Rngs,
    post_norm: str | None = None,
    standardize: bool = False,
) -> nnx.Module:
    """The network that the settings name, with a normalizer by name (or none).

    Args:
        settings: name and sizes.
        shape: the shape of one input.
        num_classes: the number of outputs.
        norm: a key of `NORMS`, or None.
        activation: a key of `ACTIVATIONS`; None for the settings' own.
        rngs: the random streams of the initial parameters.
        post_norm: a key of `NORMS` for the layer after each activation, or None.
        standardize: whether the activation is standardized under a Gaussian.
    """
    if settings.name not in MODELS:
        raise unknown("model", settings.name, MODELS)
    activation = activation or settings.activation
    if activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)
    return MODELS[settings.name](
        settings,
        shape,
        num_classes,
        make_norm=None if norm is None else NORMS[norm],
        activation=_activation(activation, standardize),
        rngs=rngs,
        make_post_norm=None if post_norm is None else NORMS[post_norm],
    )
