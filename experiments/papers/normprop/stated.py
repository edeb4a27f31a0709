"""What Arpit et al. 2016 state of their protocols, and where."""

from experiments.papers.stated import MOMENTUM, Stated, halved_each, says

_NETWORK = says("5, experimental protocols", {"model": "nin", "channels": 64, **MOMENTUM})
_HALVED = says("5, experimental protocols", halved_each(10, 50))
_CIFAR = says("5, datasets", {"held_out": 5000, "rows": 0})
_ACTIVATION = says("4.3.1", {"activation": "relu"})
_SPHERE = says("4.4", {"Sphere.squared_radius": 1.0})
#: "a small coefficient value of 0.0005 - 0.005"
_DECAY = says("4.4: 0.0005 to 0.005", {"weight_decay": 5e-4})
_FIGURES = (*_NETWORK, *_CIFAR, *_DECAY, *_ACTIVATION)
_COMMON = (*_FIGURES, *_SPHERE)

_TABLE = (
    *says("5.5", {"epochs": 25, "batch_size": 100, "learning_rate": 0.08}, "SVHN"),
    *says("5.5", {**halved_each(5, 25), "augment": "none"}, "SVHN"),
    Stated("held_out", 6000, "5, datasets: 400 and 200 a class", "SVHN"),
    *says("5.5", {"epochs": 200, "batch_size": 50, "learning_rate": 0.05}),
    *says("5.5", halved_each(25, 200)),
    *says("5.5", {"augment": "flip"}, "flips"),
    *says("5.5", {"augment": "none"}),
)

STATED = {
    "normprop/fig1": (
        *says("5.1", {"epochs": 30}),
        *says("5, experimental protocols", halved_each(10, 30)),
        *says("5.1", {"batch_size": 50, "learning_rate": 0.05}, "batch 50"),
        *says("5.1", {"batch_size": 100, "learning_rate": 0.08}, "batch 100"),
        *_COMMON,
    ),
    "normprop/fig2": (*says("5.2", {"epochs": 50, "batch_size": 50}), *_HALVED, *_FIGURES),
    "normprop/fig3": (*says("5.3", {"batch_size": 50, "learning_rate": 0.05}), *_HALVED, *_COMMON),
    "normprop/fig4": (
        *says("5.4, Figure 4", {"batch_size": 1}, "batch 1$"),
        *says("5.1", {"learning_rate": 0.05}, "batch 50"),
        *says("5.1", {"learning_rate": 0.08}, "batch 100"),
        *_HALVED,
        *_COMMON,
    ),
    "normprop/tab1": (*_TABLE, *_COMMON),
    "normprop/speed": says("5.6", {"model": "nin", "batch_size": 50, "channels": 64}),
}
