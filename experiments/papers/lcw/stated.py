"""What Kutsuna 2019 states of its protocols, and where."""

from experiments.papers.stated import ALL_ROWS, MOMENTUM, says


def _slowly(every: int, of: int) -> dict[str, object]:
    """0.95 of the rate after every so many epochs, down to 0.001, a hundredth of the first."""
    epochs = range(every, of, every)
    return {"rate_schedule": tuple((float(e), max(0.95 ** (e // every), 0.01)) for e in epochs)}


_DEEP = (
    *says("6.1", {"model": "sigmoid50", "epochs": 100, "batch_size": 128, "learning_rate": 0.1}),
    *says("6.1", {"weight_decay": 1e-4, **MOMENTUM, **_slowly(1, 100)}),
)
_DATA = says("6", {"augment": "crop-flip", **ALL_ROWS})

_CONVOLUTIONAL = (
    *says("6.2", {"batch_size": 128, "learning_rate": 0.1, "weight_decay": 5e-4, **MOMENTUM}),
    *says("6.2, which takes [21] and [6]", {"channels": 64, "activation": "relu"}),
    *_DATA,
)

STATED = {
    "lcw/fig1": says("2, Figure 1", {"units": 100, "samples": 100, "draws": 1}),
    "lcw/fig2": says("3, Figure 2", {"depth": 10, "epochs": 10}),
    "lcw/fig3": says("3, Figure 3", {"depth": 10}),
    "lcw/fig4": says("4.4", {"depth": 20, "samples": 100}),
    "lcw/fig5": (*_DEEP, *_DATA),
    "lcw/tab1": (
        *says("6.2: the last ten epochs", {"last": 10}),
        *says("6.2", {"model": "vgg19"}, "VGG19"),
        *says("6.2", {"model": "resnet18"}, "ResNet18"),
        *says("6.2", {"epochs": 300, **_slowly(3, 300)}, "CIFAR-10$"),
        *says("6.2", {"epochs": 500, **_slowly(5, 500)}, "CIFAR-100$"),
        *_CONVOLUTIONAL,
    ),
    "lcw/fig6": (
        *says("6.2", {"model": "vgg19", "epochs": 500, **_slowly(5, 500)}),
        *_CONVOLUTIONAL,
    ),
}
