"""The tables of Littwin and Wolf 2018 on images: the variance constancy loss and normalizers."""

from experiments.papers.grid import PAPER, Column, Row, claims, drops
from experiments.papers.speed import timing
from experiments.papers.table import table

#: Section 3, CIFAR: the 11-layer network.
ELU11 = PAPER.changed(
    model="elu11",
    learning_rate=0.05,
    batch_size=250,
    epochs=500,
    weight_decay=1e-4,
    rate_schedule=drops(500, {180: 0.4, 280: 0.04, 380: 0.004, 480: 0.0004}),
    augment="crop-flip",
)

#: Seconds of 100 iterations on CIFAR-100, without normalization, with BN and with the loss.
CPU_SECONDS = {"none": 367.1, "bn": 702.3, "vcl": 400.1}
GPU_SECONDS = {"none": 29.2, "bn": 31.6, "vcl": 30.3}

TAB1 = timing(
    "vcl/tab1",
    "time of training steps of the 11-layer ELU network",
    "BN costs 1.91 and VCL 1.09 of the network alone on a CPU; 1.08 and 1.04 on a GPU",
    {
        method: {
            "Intel i7": CPU_SECONDS[method] / CPU_SECONDS["none"],
            "Volta": GPU_SECONDS[method] / GPU_SECONDS["none"],
        }
        for method in ("bn", "vcl")
    },
    model="elu11",
    activation="elu",
    batch_size=250,
)

ACTIVATIONS = {"ReLU": "relu", "LReLU": "leaky_relu_0.2", "ELU": "elu"}
NORMALIZERS = {
    "": ("none", {}),
    "+bn": ("bn", {}),
    "+ln": ("ln", {}),
    "+gn": ("gn", {}),
    **{f"+vcl (n = {n})": ("vcl", {"sample_size": n}) for n in (9, 7, 5, 3, 2)},
}

TAB2 = table(
    "vcl/tab2",
    "test errors of the 11-layer network: activations, normalizers, the loss",
    "ELU + VCL is best; VCL helps every activation; BN helps ReLU and ELU but not LReLU",
    as_error=True,
    orderings=(
        *claims("ELU+vcl (n = 5)", "ELU+bn"),
        *claims("ReLU+vcl (n = 5)", "ReLU"),
        *claims("LReLU+vcl (n = 5)", "LReLU"),
        *claims("ELU+vcl (n = 5)", "ELU"),
        *claims("ReLU+bn", "ReLU"),
        *claims("ELU+bn", "ELU"),
        *claims("LReLU", "LReLU+bn"),
    ),
    full=ELU11,
    full_cost="2 GPU hours a run (estimated)",
    cpu={
        "only_rows": (
            *("ELU", "ELU+bn", "ELU+vcl (n = 5)"),
            *("ReLU", "ReLU+bn", "ReLU+vcl (n = 5)"),
        ),
        "epochs": 6,
    },
    cpu_cost="20 min on 2 CPU cores with --jobs 2",
    smoke={"only_rows": ("ELU", "ELU+vcl (n = 5)")},
    rows={
        f"{name}{end}": Row(method, {"activation": activation, **changes})
        for name, activation in ACTIVATIONS.items()
        for end, (method, changes) in NORMALIZERS.items()
    },
    # In lines of one activation.
    columns={
        "CIFAR-10": Column(
            "cifar10",
            (
                *(8.36, 7.78, 7.92, 8.71, 7.80, 8.10, 7.85, 7.90, 7.80),
                *(6.70, 7.08, 7.00, 7.07, 6.60, 6.65, 6.48, 6.57, 6.45),
                *(6.98, 6.63, 6.75, 6.71, 6.70, 6.33, 6.15, 6.22, 6.15),
            ),
        ),
        "CIFAR-100": Column(
            "cifar100",
            (
                *(32.8, 29.1, 30.7, 31.9, 30.8, 30.5, 30.4, 30.6, 30.3),
                *(26.8, 27.2, 27.0, 28.3, 26.7, 26.4, 26.4, 26.2, 26.3),
                *(28.7, 26.7, 26.7, 28.2, 27.6, 27.1, 25.8, 26.1, 25.6),
            ),
        ),
    },
)

TAB3 = table(
    "vcl/tab3",
    "validation errors on Tiny ImageNet, twice as wide",
    "VCL 0.373 against 0.392 without normalization and 0.402 with BN",
    as_error=True,
    orderings=(*claims("ELU+vcl (n = 2)", "ELU"), *claims("ELU", "ELU+bn")),
    literature={"ResNet-110": 46.5, "Wide-ResNet-32": 36.5, "DenseNet-40": 39.0},
    full=ELU11.changed(
        activation="elu",
        channels=128,
        epochs=250,
        rate_schedule=drops(250, {50: 0.4, 100: 0.04, 180: 0.004}),
    ),
    full_cost="10 GPU hours a run (estimated)",
    cpu={"epochs": 5},
    cpu_cost="15 min on 2 CPU cores (estimated); any folder of small images",
    smoke={"only_rows": ("ELU", "ELU+vcl (n = 2)"), "model": "cnn4"},
    rows={
        "ELU": Row("none"),
        "ELU+bn": Row("bn"),
        "ELU+vcl (n = 2)": Row("vcl", {"sample_size": 2}),
    },
    columns={"": Column("tiny-imagenet", (39.2, 40.2, 37.3))},
)
