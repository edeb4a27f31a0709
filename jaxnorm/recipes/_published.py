"""The trainings of the five papers, by method and network.

Of Luo et al. 2019 (batch normalization in pieces) there is none: they state a rate and its drops
for one network, ResNet-18 on ImageNet (0.1, a tenth after 30, 60 and 90 epochs), and no length.
"""

from collections.abc import Mapping
from types import MappingProxyType

from jaxnorm.recipes._recipe import Recipe

_CNN9 = Recipe(
    learning_rate=0.1,
    batch_size=128,
    epochs=200,
    weight_decay=1e-3,
    cosine=True,
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
    source="Arpit et al. 2016, section 5.5; its decay is within 0.0005 to 0.005 (section 4)",
)

#: Recipes by ``METHOD/NETWORK`` or ``METHOD/NETWORK/DATA``; DATA is CIFAR if left out.
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "cwo/cnn9": _CNN9,
        "cwo/resnet110": _CNN9._replace(learning_rate=0.2, growing=True),
        "cwo/wrn28x10": _CNN9._replace(
            learning_rate=0.2,
            weight_decay=5e-3,
            stddev=1.0,
            growing=True,
            source="Ikami et al. 2021, sections 4.1.1 and 4.1.4",
        ),
        "cwo/resnet50/imagenet": Recipe(
            learning_rate=0.1,
            batch_size=256,
            epochs=None,
            rate_schedule=((30, 0.1), (60, 0.01), (90, 0.001)),
            squared_radius=2.0,
            growing=True,
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
