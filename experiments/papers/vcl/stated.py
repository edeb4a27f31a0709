"""What Littwin and Wolf 2018 state of their protocols, and where."""

from experiments.papers.stated import ALL_ROWS, MOMENTUM, Stated, says

_ACTIVATIONS = tuple(
    Stated("activation", value, "3, CIFAR", f"^{name}")
    for name, value in (("ReLU", "relu"), ("LReLU", "leaky_relu_0.2"), ("ELU", "elu"))
)
_SAMPLES = tuple(Stated("sample_size", n, "3, Table 2", f"n = {n}") for n in (2, 3, 5, 7, 9))
#: To 0.02, and then a tenth every hundred epochs.
_CIFAR_DROPS = ((180.0, 0.4), (280.0, 0.04), (380.0, 0.004), (480.0, 0.0004))
_TINY_DROPS = ((50.0, 0.4), (100.0, 0.04), (180.0, 0.004))

_COMMON = (
    *says("3, CIFAR", {"model": "elu11", "batch_size": 250, "learning_rate": 0.05}),
    *says("3, CIFAR", {"weight_decay": 1e-4, "vcl_weight": 0.01, "vcl_clip": 1.0, **MOMENTUM}),
)

_UCI = (
    *says("3, UCI", {"width": 256, "depths": (4, 8, 16), "epochs": 500, "batch_size": 20}),
    *says("3, UCI", {"learning_rate": 0.01, "rate_schedule": ((200.0, 0.1),), "window": 10}),
    *says("3, UCI", {"head_dropout": 0.5, "alpha_dropout": 0.05}),
    *says("3, UCI", {"sample_size": 10, "vcl_weight": 0.01}),
    *says("3, UCI; Table 4", {"activations": ("relu", "elu", "selu"), **ALL_ROWS}),
    *says("3, UCI; Table 4", {"normalizations": ("none", "bn", "vcl")}),
)

STATED = {
    "vcl/fig2": says("2.1, Figure 2", {"priors": (0.1, 0.25)}),
    "vcl/tab1": says("3, Table 1", {"model": "elu11", "activation": "elu", "batch_size": 250}),
    "vcl/tab2": (
        *_ACTIVATIONS,
        *_SAMPLES,
        *says("3, CIFAR", {"epochs": 500, "rate_schedule": _CIFAR_DROPS, "channels": 64}),
        *says("3, CIFAR", {"augment": "crop-flip", **ALL_ROWS}),
        *_COMMON,
    ),
    "vcl/tab3": (
        *says("3, Tiny ImageNet", {"epochs": 250, "rate_schedule": _TINY_DROPS, "channels": 128}),
        *says("3, Tiny ImageNet", {"augment": "crop-flip", **ALL_ROWS}),
        *says("Table 3 (the text says n = 5)", {"sample_size": 2}),
        *says("Table 3", {"activation": "elu"}),
        *_COMMON,
    ),
    "vcl/tab4": _UCI,
    "vcl/tab5": _UCI,
    "vcl/fig3": _UCI,
}
