"""The tables of Ikami et al. 2021: errors and accuracies with constrained weights.

The paper names learning rates and decays for its own method; the others get the same.
"""

from experiments.papers.cwo.signal import KEEPING
from experiments.papers.grid import PAPER, Column, Row, claims, drops, rows_named
from experiments.papers.item import Item
from experiments.papers.table import table

#: Section 4.1.1: changes of `PAPER` by network. In residual networks noise grows with the depth
#: (section 3.3, Eq. 8), up to the sigma of tables 3 and 4.
CNN = {"model": "cnn9", "learning_rate": 0.1, "weight_decay": 1e-3}
RESNET = {**CNN, "model": "resnet110", "learning_rate": 0.2, "growing_noise": 1.0}
WRN = {**RESNET, "model": "wrn28x10", "weight_decay": 5e-3}

#: The second augmentation of the paper; the first is `STANDARD`.
FAST = {"augment": "fast-autoaugment-cutout"}
STANDARD = {"augment": "crop-flip"}
RESNET_FAST, WRN_FAST = {**RESNET, **FAST}, {**WRN, **FAST}

#: Plain networks in the place of residual ones, with the methods' own noise.
SMALLER = {"model": "cnn4", "growing_noise": 0.0, "augment": "none"}
CNN9 = {"model": "cnn9", "growing_noise": 0.0, "learning_rate": 0.05, "epochs": 6}

TAB1 = table(
    "cwo/tab1",
    "top-1 errors with constrained weights and with normalized activations",
    "ours is best or close to BN everywhere, and always better than GN",
    as_error=True,
    orderings=(
        *claims("Ours", "BN", "WS+BN", margin=1.0),
        *claims("Ours", "GN", "WS+GN"),
        *claims("BN", "GN"),
    ),
    full=PAPER.changed(**CNN, **STANDARD),
    full_cost="1 GPU hour a CNN run, 10 a WRN-28-10 run (estimated)",
    cpu={"learning_rate": 0.05, "epochs": 6},
    cpu_cost="10 min on 2 CPU cores with --jobs 2",
    smoke={"only_rows": ("Ours", "BN")},
    rows={"Ours": Row("cwo"), **rows_named("BN", "GN", "WS+BN", "WS+GN")},
    columns={
        "CNN, CIFAR-10, standard": Column("cifar10", (5.50, 5.36, 6.45, 5.43, 5.71)),
        "ResNet-110, CIFAR-10, standard": Column("cifar10", (5.65, 5.68, 6.34, 5.52, 6.69), RESNET),
        "WRN-28-10, CIFAR-10, standard": Column("cifar10", (4.19, 3.70, 5.01, 4.78, 4.67), WRN),
        "CNN, CIFAR-10, FastAA": Column("cifar10", (4.18, 4.40, 4.93, 4.65, 4.37), FAST),
        "ResNet-110, CIFAR-10, FastAA": Column(
            "cifar10", (4.26, 4.11, 6.76, 3.92, 5.85), RESNET_FAST
        ),
        "WRN-28-10, CIFAR-10, FastAA": Column("cifar10", (2.59, 2.64, 3.68, 3.42, 3.29), WRN_FAST),
        "CNN, CIFAR-100, standard": Column("cifar100", (24.26, 25.11, 29.28, 25.51, 26.27)),
        "ResNet-110, CIFAR-100, standard": Column(
            "cifar100", (25.16, 26.28, 29.75, 25.55, 28.51), RESNET
        ),
        "WRN-28-10, CIFAR-100, standard": Column(
            "cifar100", (18.31, 18.48, 22.63, 19.82, 22.62), WRN
        ),
        "CNN, CIFAR-100, FastAA": Column("cifar100", (21.03, 22.23, 25.34, 21.87, 22.31), FAST),
        "ResNet-110, CIFAR-100, FastAA": Column(
            "cifar100", (21.87, 21.84, 28.90, 22.10, 27.83), RESNET_FAST
        ),
        "WRN-28-10, CIFAR-100, FastAA": Column(
            "cifar100", (16.40, 16.57, 19.96, 19.18, 19.41), WRN_FAST
        ),
    },
)

#: Batch sizes of table 2, with learning rates in proportion (section 4.1.3).
SIZES = {
    "B = 4": {"batch_size": 4, "rate_scale": 4 / 128},
    "B = 16": {"batch_size": 16, "rate_scale": 16 / 128},
    "B = 128": {"batch_size": 128, "rate_scale": 1.0},
}

TAB2 = table(
    "cwo/tab2",
    "errors with batches of 4, 16 and 128 samples",
    "BN degrades with small batches; ours does not",
    as_error=True,
    orderings=(
        *claims("Ours, B = 4", "BN, B = 4"),
        *claims("Ours, B = 16", "BN, B = 16"),
        *claims("BN, B = 128", "BN, B = 4"),
    ),
    full=PAPER.changed(**WRN_FAST),
    full_cost="10 GPU hours a run, more for small batches (estimated)",
    cpu={**CNN9, **STANDARD, "learning_rate": 0.1, "channels": 8},
    cpu_cost="10 min of one CPU core",
    smoke={**SMALLER, "only_rows": ("Ours, B = 16", "BN, B = 16")},
    rows={
        f"{name}, {size}": Row(method, changes)
        for name, method in (("Ours", "cwo"), ("BN", "bn"))
        for size, changes in SIZES.items()
    },
    columns={
        "CIFAR-10": Column("cifar10", (2.65, 2.64, 2.59, 3.08, 2.80, 2.64)),
        "CIFAR-100": Column("cifar100", (15.12, 14.80, 16.40, 17.98, 16.37, 16.57)),
    },
)

TAB3 = table(
    "cwo/tab3",
    "the ablation: zero mean, unit sphere, noise",
    "both constraints together are better than either alone, and noise improves every one",
    as_error=True,
    orderings=(
        *claims("both", "neither", "centre", "sphere"),
        *claims("neither + noise", "neither"),
        *claims("centre + noise", "centre"),
        *claims("sphere + noise", "sphere"),
        *claims("both + noise", "both"),
    ),
    full=PAPER.changed(**WRN, **STANDARD),
    full_cost="10 GPU hours a run (estimated)",
    cpu=CNN9,
    cpu_cost="20 min on 2 CPU cores with --jobs 2",
    smoke={**SMALLER, "only_rows": ("both", "both + noise")},
    rows={
        "neither": Row("cwo-none"),
        "neither + noise": Row("cwo-noise"),
        "centre": Row("cwo-centre"),
        "centre + noise": Row("cwo-centre-noise"),
        "sphere": Row("cwo-sphere"),
        "sphere + noise": Row("cwo-sphere-noise"),
        "both": Row("cwo-centre-sphere"),
        "both + noise": Row("cwo"),
    },
    columns={
        "CIFAR-10": Column("cifar10", (5.36, 4.97, 5.58, 4.66, 5.68, 5.29, 4.45, 4.19)),
        "CIFAR-100": Column("cifar100", (24.15, 21.85, 23.43, 20.43, 22.76, 20.88, 20.61, 18.31)),
    },
)

WIDER = {"squared_radius": KEEPING}

RADIUS = table(
    "cwo/radius",
    "errors with c = 2, and with the c that keeps the second moment of centred weights' layers",
    "c = 2 keeps the variance (Eq. 3), and all its tables have it; it trains with no other c",
    as_error=True,
    orderings=(
        *claims("c = 2", "c = 2.93", margin=1.0),
        *claims("c = 2 + noise", "c = 2.93 + noise", margin=1.0),
    ),
    full=PAPER.changed(**WRN, **STANDARD),
    full_cost="10 GPU hours a run (estimated)",
    cpu={**CNN9, "only_rows": ("c = 2", "c = 2.93")},
    cpu_cost="5 min on 2 CPU cores with --jobs 2",
    smoke={**SMALLER, "only_rows": ("c = 2", "c = 2.93")},
    rows={
        "c = 2": Row("cwo-centre-sphere"),
        "c = 2.93": Row("cwo-centre-sphere", WIDER),
        "c = 2 + noise": Row("cwo"),
        "c = 2.93 + noise": Row("cwo", WIDER),
    },
    # The numbers of c = 2 are those of table 3.
    columns={
        "CIFAR-10": Column("cifar10", (4.45, None, 4.19, None)),
        "CIFAR-100": Column("cifar100", (20.61, None, 18.31, None)),
    },
)


def noise_sizes(name: str, title: str, column: str) -> Item:
    """Makes table 4, of CIFAR-10, or figure 2, of CIFAR-100.

    Noise is constant, or grows in proportion to the depth of the layer up to sigma.
    """
    constant, linear = (0, 0.1, 0.2, 0.3, 0.4), (0.2, 0.4, 0.6, 0.8, 1)
    return table(
        name,
        title,
        "noise of the proper size improves: linear noise of 1 most, constant noise of 0.4 next",
        as_error=True,
        orderings=(
            *claims("constant, sigma = 0.4", "constant, sigma = 0"),
            *claims("linear, sigma = 1", "constant, sigma = 0"),
        ),
        # The rows name the noise.
        full=PAPER.changed(**{**WRN, **STANDARD, "growing_noise": 0.0, "only_columns": (column,)}),
        full_cost="10 GPU hours a run (estimated)",
        cpu={"model": "resnet18", "learning_rate": 0.05, "epochs": 5},
        cpu_cost="1 h on 2 CPU cores (estimated)",
        smoke={**SMALLER, "only_rows": ("constant, sigma = 0.4", "linear, sigma = 0.4")},
        rows={f"constant, sigma = {s}": Row("cwo", {"noise": float(s)}) for s in constant}
        | {f"linear, sigma = {s}": Row("cwo-linear", {"noise": float(s)}) for s in linear},
        columns={
            "CIFAR-10": Column(
                "cifar10", (4.45, 4.78, 4.55, 4.59, 4.25, 4.49, 4.49, 4.45, 4.45, 4.19)
            ),
            "CIFAR-100": Column(
                "cifar100",
                (20.61, 21.00, 20.13, 19.81, None, 20.78, 19.86, 18.74, 18.25, 18.31),
            ),
        },
    )


TAB4 = noise_sizes("cwo/tab4", "errors with noise of several sizes", "CIFAR-10")
FIG2 = noise_sizes(
    "cwo/fig2", "learning curves with noise of several sizes, CIFAR-100", "CIFAR-100"
)

#: The other methods' accuracies are the paper's citations. Section 4.2.1; epochs, batches and rates
#: are those of Wang et al. 2019, whose settings it takes.
TAB5 = table(
    "cwo/tab5",
    "overall and mean-class accuracy on ModelNet40, DGCNN",
    "ours 91.4, GN 89.7, WS+GN 91.2, BN 91.7, WS+BN 92.0",
    beside=("class_accuracy",),
    orderings=(
        *claims("Ours", "GN"),
        *claims("BN", "Ours"),
        *claims("Ours", "GN", measure="class_accuracy"),
        *claims("BN", "Ours", measure="class_accuracy"),
    ),
    full=PAPER.changed(
        model="dgcnn",
        activation="leaky_relu_0.2",
        epochs=250,
        batch_size=32,
        weight_decay=1e-4,
        augment="points",
        scores=("class_accuracy",),
    ),
    full_cost="5 GPU hours a run (estimated)",
    cpu={"train_rows": 400, "test_rows": 200, "epochs": 5, "batch_size": 16},
    cpu_cost="30 min on 2 CPU cores (estimated); meshes or HDF5 files in --data-dir",
    smoke={"only_rows": ("Ours", "GN"), "model": "mlp", "width": 32, "augment": "none"},
    rows={
        "Ours": Row("cwo", {"noise": 0.4}),
        **rows_named("GN", "WS+GN", "BN", "WS+BN", noise=0.4),
    },
    columns={
        "": Column(
            "modelnet40",
            (91.4, 89.7, 91.2, 91.7, 92.0),
            also={"class_accuracy": (89.0, 87.0, 88.8, 89.3, 89.6)},
        )
    },
)

#: The accuracies of all but Ours and Plain are the paper's citations. Section 4.3.1; the weight
#: decay is not given, and 1e-4 is the usual one.
TAB6 = table(
    "cwo/tab6",
    "top-1 and top-5 accuracy on ImageNet, ResNet-50",
    "ours 75.15 against 73.76 without normalization and 75.19 with GN",
    beside=("top5_accuracy",),
    orderings=(*claims("Ours", "Plain"), *claims("WS+BN", "Ours")),
    full=PAPER.changed(
        model="resnet50",
        batch_size=256,
        epochs=100,
        rate_schedule=drops(100, {30: 0.1, 60: 0.01, 90: 0.001}),
        weight_decay=1e-4,
        growing_noise=1.0,
        augment="resized-crop-flip",
        side=224,
        scores=("top5_accuracy",),
        seeds=1,
    ),
    full_cost="days on 8 GPUs (estimated)",
    cpu={"model": "resnet18", **STANDARD, "learning_rate": 0.05, "epochs": 5},
    cpu_cost="1 h on 2 CPU cores (estimated); any folder of small images",
    smoke={**SMALLER, "only_rows": ("Ours", "Plain")},
    rows={
        "Ours": Row("cwo"),
        "Plain": Row("none"),
        **rows_named("GN", "WS+GN", "BN", "WS+BN"),
    },
    columns={
        "": Column(
            "imagenet",
            (75.15, 73.76, 75.19, 76.28, 75.70, 76.24),
            also={"top5_accuracy": (92.37, 91.15, 92.54, 93.01, 92.81, 92.87)},
        )
    },
)
