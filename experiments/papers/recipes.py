"""Hyperparameters that the papers state, by method and network.

Luo et al. 2019 (regularization in batch normalization) state none completely: for one network,
ResNet-18 on ImageNet, they give the learning rate (0.1, divided by 10 after 30, 60 and 90 epochs)
but not the number of epochs.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Recipe(NamedTuple):
    """The hyperparameters of a method on a network, as its paper states them.

    A value that the paper does not state is None; no value of ours is among these.

    Attributes:
        learning_rate: the rate of SGD with momentum at the first step.
        batch_size: rows per step.
        epochs: passes over the training rows.
        source: the place in the paper.
        momentum: the momentum of SGD.
        weight_decay: the decay of kernels; scales and biases have none.
        rate_schedule: a staircase of ``(epoch, factor)``: after that epoch the learning rate is the
            first one times the factor. Empty for half a cosine down to 0.
        squared_radius: c of ||w||^2 = c, in constrained weight optimization and in normalization
            propagation.
        sample_size: n of the variance constancy loss.
        strength: the factor of the variance constancy loss.
    """

    learning_rate: float
    batch_size: int
    epochs: int | None
    source: str
    momentum: float | None = 0.9
    weight_decay: float | None = None
    rate_schedule: tuple[tuple[int, float], ...] = ()
    squared_radius: float | None = None
    sample_size: int | None = None
    strength: float | None = None


_CNN9 = Recipe(
    learning_rate=0.1,
    batch_size=128,
    epochs=200,
    weight_decay=1e-3,
    squared_radius=2.0,
    source="Ikami et al. 2021, section 4.1.1",
)

_LCW = Recipe(
    learning_rate=0.1,
    batch_size=128,
    epochs=300,
    weight_decay=5e-4,
    rate_schedule=tuple((3 * k, max(0.95**k, 0.01)) for k in range(1, 100)),
    source="Kutsuna 2019, section 6.2",
)
_LCW_100 = _LCW._replace(
    epochs=500, rate_schedule=tuple((5 * k, f) for k, (_, f) in enumerate(_LCW.rate_schedule, 1))
)

_ELU11 = Recipe(
    learning_rate=0.05,
    batch_size=250,
    epochs=500,
    weight_decay=1e-4,
    rate_schedule=((180, 0.4), (280, 0.04), (380, 0.004), (480, 0.0004)),
    sample_size=5,
    strength=0.01,
    source="Littwin and Wolf 2018, section 3",
)

_NIN = Recipe(
    learning_rate=0.05,
    batch_size=50,
    epochs=200,
    rate_schedule=tuple((25 * k, 0.5**k) for k in range(1, 8)),
    squared_radius=1.0,
    source="Arpit et al. 2016, section 5.5; the weight decay is within 0.0005 to 0.005 (section 4)",
)

#: Recipes by ``METHOD/NETWORK`` or ``METHOD/NETWORK/DATA``; without DATA they are for CIFAR.
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "cwo/cnn9": _CNN9,
        "cwo/resnet110": _CNN9._replace(learning_rate=0.2),
        "cwo/wrn28x10": _CNN9._replace(learning_rate=0.2, weight_decay=5e-3),
        "cwo/resnet50/imagenet": Recipe(
            learning_rate=0.1,
            batch_size=256,
            epochs=None,
            rate_schedule=((30, 0.1), (60, 0.01), (90, 0.001)),
            squared_radius=2.0,
            source="Ikami et al. 2021, section 4.3.1",
        ),
        "lcw/sigmoid50": _LCW._replace(
            epochs=100,
            weight_decay=1e-4,
            rate_schedule=tuple((k, factor) for k, (_, factor) in enumerate(_LCW.rate_schedule, 1)),
            source="Kutsuna 2019, section 6.1",
        ),
        "lcw/vgg19/cifar10": _LCW,
        "lcw/resnet18/cifar10": _LCW,
        "lcw/vgg19/cifar100": _LCW_100,
        "lcw/resnet18/cifar100": _LCW_100,
        "normprop/nin": _NIN,
        "normprop/nin/svhn": _NIN._replace(
            learning_rate=0.08,
            batch_size=100,
            epochs=25,
            rate_schedule=tuple((5 * k, 0.5**k) for k in range(1, 5)),
        ),
        "vcl/elu11": _ELU11,
        "vcl/elu11/tiny-imagenet": _ELU11._replace(
            epochs=250, rate_schedule=((50, 0.4), (100, 0.04), (180, 0.004))
        ),
        "vcl/mlp/uci": Recipe(
            learning_rate=0.01,
            batch_size=20,
            epochs=500,
            momentum=None,
            rate_schedule=((200, 0.1),),
            sample_size=10,
            strength=0.01,
            source="Littwin and Wolf 2018, section 3",
        ),
    }
)
