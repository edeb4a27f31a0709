"""Networks by name."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from flax import nnx

from experiments._errors import UserError, unknown
from experiments.models._blocks import ACTIVATIONS
from experiments.models._cnn9 import CNN9
from experiments.models._mlp import MLP
from experiments.models._norms import NORMS


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


def _cnn9(
    settings: ModelSettings, shape: Sequence[int], num_classes: int, **rest: object
) -> nnx.Module:
    if len(shape) != 3 or min(shape[:2]) < 4:
        raise UserError(
            f"cnn9 needs images of at least 4 x 4 pixels and got rows of shape {tuple(shape)}; "
            "take --model mlp, or a dataset of images."
        )
    return CNN9(shape, num_classes, channels=settings.channels, **rest)


MODELS: Mapping[str, Builder] = MappingProxyType({"mlp": _mlp, "cnn9": _cnn9})


def build(
    settings: ModelSettings,
    shape: Sequence[int],
    num_classes: int,
    norm: str | None,
    activation: str | None,
    rngs: nnx.Rngs,
) -> nnx.Module:
    """The network that the settings name, with a normalizer by name (or none).

    Args:
        settings: name and sizes.
        shape: the shape of one input.
        num_classes: the number of outputs.
        norm: a key of `NORMS`, or None.
        activation: a key of `ACTIVATIONS`; None for the settings' own.
        rngs: the random streams of the initial parameters.
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
        activation=ACTIVATIONS[activation],
        rngs=rngs,
    )
