"""What Ikami et al. 2021 state of their protocols, and where."""

from experiments.names import POLICIES
from experiments.papers.stated import ALL_ROWS, COSINE, MOMENTUM, Stated, says, tenth_at

_SETUP = "4.1.1"
#: Learning rates and decays are named "for our method": of the rivals' nothing is said.
_OURS = "^Ours|^c =|centre|sphere|both|noise|sigma|neither"

_SPHERE = (*says("3.1", {"Sphere.squared_radius": 2.0}), *says("3.2", {"Sphere.centered": True}))
_CIFAR = (
    *says(_SETUP, {"epochs": 200, "channels": 64, **MOMENTUM, **COSINE, **ALL_ROWS}),
    *says(_SETUP, {"activation": "relu"}),
    *_SPHERE,
)

#: The wide residual network, as tables 2 to 4 and figure 2 train it.
_WIDE = (
    *says("Tables 2 to 4", {"model": "wrn28x10"}),
    *says(_SETUP, {"weight_decay": 5e-3}, _OURS),
    *says("3.3, Eq. 8", {"ScaleNoise.grows": True}, "^(?!constant)"),
    *_CIFAR,
)
_STANDARD = (
    *says(_SETUP, {"batch_size": 128}),
    *says(_SETUP, {"learning_rate": 0.2}, _OURS),
    *says("Tables 3 and 4", {"augment": "crop-flip"}),
)


_SMALL_BATCHES = tuple(
    stated
    for size in (4, 16, 128)
    for stated in (
        Stated("batch_size", size, "Table 2", f"B = {size},"),
        Stated("learning_rate", 0.2 * size / 128, "4.1.3", f"^Ours, B = {size},"),
    )
)
_NOISES = says("Table 3", {"noise": 1.0})

_LEVELS = tuple(
    Stated("noise", level / 10, "Table 4", f"sigma = {level / 10:g}\\b(?!\\.)")
    for level in (0, 1, 2, 3, 4, 6, 8, 10)
)
_TAB4 = (*_LEVELS, *says("4.1.4", {"ScaleNoise.grows": False}, "^constant"), *_WIDE, *_STANDARD)

STATED = {
    "cwo/signal": (),
    "cwo/radius": (*_NOISES, *_WIDE, *_STANDARD),
    "cwo/tab1": (
        *says("Table 1", {"model": "cnn9"}, "CNN"),
        *says("Table 1", {"model": "resnet110"}, "ResNet-110"),
        *says("Table 1", {"model": "wrn28x10"}, "WRN-28-10"),
        *says(_SETUP, {"learning_rate": 0.1, "weight_decay": 1e-3}, "^Ours, CNN"),
        *says(_SETUP, {"learning_rate": 0.2, "weight_decay": 1e-3}, "^Ours, ResNet"),
        *says(_SETUP, {"learning_rate": 0.2, "weight_decay": 5e-3}, "^Ours, WRN"),
        *says(_SETUP, {"augment": "crop-flip"}, "standard"),
        *says(_SETUP, {"augment": POLICIES}, "FastAA"),
        *says("Tables 3 and 4", {"noise": 1.0}, "WRN"),
        *says("3.3, Eq. 8", {"ScaleNoise.grows": True}, "ResNet|WRN"),
        *says("3.3", {"ScaleNoise.grows": False}, "CNN"),
        *says(_SETUP, {"batch_size": 128}),
        *_CIFAR,
    ),
    "cwo/tab2": (*_SMALL_BATCHES, *says("Table 2", {"augment": POLICIES}), *_NOISES, *_WIDE),
    "cwo/tab3": (
        *says("Table 3", {"Sphere.centered": False}, "^sphere"),
        *_NOISES,
        *_WIDE,
        *_STANDARD,
    ),
    "cwo/tab4": _TAB4,
    "cwo/fig2": _TAB4,
    "cwo/tab5": (
        *says("4.2.1", {"model": "dgcnn", "noise": 0.4, "augment": "points"}),
        *says("4.2.1, which takes [31]", {"activation": "leaky_relu_0.2", "channels": 64}),
        *says("4.2.1, which takes [31]", {"batch_size": 32, "learning_rate": 0.1, **MOMENTUM}),
        *says("4.2", ALL_ROWS),
        *_SPHERE,
    ),
    "cwo/tab6": (
        *says("4.3.1", {"model": "resnet50", "batch_size": 256, "learning_rate": 0.1}),
        *says("4.3.1", {"augment": "resized-crop-flip", "side": 224, **MOMENTUM}),
        *says("4.3.1", tenth_at(30, 60, 90)),
        *says("4.3.1, which takes [8]", {"channels": 64, "activation": "relu"}),
        *says("4.3", ALL_ROWS),
        *says("3.3, Eq. 8", {"ScaleNoise.grows": True}),
        *_SPHERE,
    ),
}
