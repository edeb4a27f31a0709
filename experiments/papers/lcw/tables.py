"""The tables and training curves of Kutsuna 2019: networks with linearly constrained weights."""

from experiments.papers.grid import PAPER, Column, Row, claims, decays, rows_named
from experiments.papers.table import table

#: Section 6: changes of `PAPER`. The learning rate falls by 5% every few epochs, down to a
#: hundredth: after 1 epoch (section 6.1), 3 (CIFAR-10) and 5 (CIFAR-100, section 6.2).
SIGMOID50 = {
    "model": "sigmoid50",
    "epochs": 100,
    "weight_decay": 1e-4,
    "rate_schedule": decays(100, 1, 0.95, 0.01),
}
VGG19 = {"model": "vgg19", "epochs": 300, "rate_schedule": decays(300, 3, 0.95, 0.01)}
VGG19_100 = {"model": "vgg19", "epochs": 500, "rate_schedule": decays(500, 5, 0.95, 0.01)}

#: Rows of figure 5, by the names of their methods.
ALONE = ("LCW", "BN", "SL", "WN", "CWN", "SN")

FIG5 = table(
    "lcw/fig5",
    "training 50 hidden sigmoid layers of 256 units",
    "WN and SN do not train at all; LCW converges fastest; BN+LCW generalizes best",
    orderings=(
        *claims("LCW", "BN", "SL", "CWN", measure="train_loss"),
        *claims("LCW", "WN", "SN", measure="train_accuracy"),
        *claims("BN+LCW", "LCW", "BN"),
    ),
    full=PAPER.changed(**SIGMOID50, augment="crop-flip"),
    full_cost="20 min on one GPU a run (estimated)",
    # The network has no channels; 64 stays, so that stored runs are found.
    cpu={
        "only_rows": (*ALONE, "BN+LCW"),
        "channels": 64,
        "augment": "none",
        "epochs": 20,
        "train_rows": 5000,
        "rate_schedule": (),
        "batch_size": 128,
    },
    cpu_cost="15 min on 2 CPU cores with --jobs 2",
    # Fifty layers take two minutes to compile.
    smoke={
        "only_rows": ("LCW", "WN"),
        "model": "mlp",
        "activation": "sigmoid",
        "width": 32,
        "augment": "none",
    },
    rows=rows_named(*ALONE, "BN+LCW", "BN+WN", "BN+CWN", "BN+SN", "BN+SL"),
    columns={"CIFAR-10": Column("cifar10"), "CIFAR-100": Column("cifar100")},
)

#: Methods beside batch normalization, by the end of a row's name.
BESIDE_BN = {"": "bn", "+LCW": "bn+lcw", "+WN": "bn+wn", "+CWN": "bn+cwn", "+SN": "bn+sn"}
VGG_ROWS = {f"VGG19{end}": Row(method) for end, method in BESIDE_BN.items()}
RESNET_ROWS = {
    f"ResNet18{end}": Row(method, {"model": "resnet18"}) for end, method in BESIDE_BN.items()
}

#: What table 1 and figure 6 share.
VGG_AND_RESNET = "LCW improves VGG19 in accuracy and loss; on ResNet-18 it makes little difference"
VGG_ORDERINGS = (
    *claims("VGG19+LCW", "VGG19", "VGG19+WN", "VGG19+CWN"),
    *claims("VGG19+LCW", "VGG19", measure="test_loss"),
    *claims("VGG19+LCW", "VGG19", measure="train_loss"),
)
VGG_COST = "2 GPU hours a run (estimated)"
VGG_CPU_COST = "20 min of one CPU core (estimated)"
VGG_CPU = {
    "only_rows": ("VGG19", "VGG19+LCW", "VGG19+WN", "VGG19+CWN", "ResNet18", "ResNet18+LCW"),
    "channels": 8,
    "epochs": 8,
}
VGG_SMOKE = {"only_rows": ("VGG19", "VGG19+LCW")}
#: The paper's accuracies and losses of VGG19 on CIFAR-100, in the order of `BESIDE_BN`.
VGG_ACCURACIES = (73.2, 74.1, 72.5, 72.7, 73.3)
VGG_LOSSES = (1.788, 1.569, 1.914, 1.827, 1.644)

TAB1 = table(
    "lcw/tab1",
    "VGG19 and ResNet-18 with BN and constrained weights",
    VGG_AND_RESNET,
    beside=("test_loss",),
    orderings=VGG_ORDERINGS,
    # The table shows the mean of the last ten epochs.
    full=PAPER.changed(**VGG19, augment="crop-flip", last=10),
    full_cost=VGG_COST,
    cpu=VGG_CPU,
    cpu_cost=VGG_CPU_COST,
    smoke=VGG_SMOKE,
    rows={**VGG_ROWS, **RESNET_ROWS},
    columns={
        "CIFAR-10": Column(
            "cifar10",
            (93.6, 93.8, 93.1, 93.4, 93.6, 95.2, 95.2, 95.1, 94.8, 95.2),
            also={
                "test_loss": (
                    *(0.354, 0.332, 0.391, 0.372, 0.358, 0.204, 0.187, 0.206, 0.216, 0.206),
                )
            },
        ),
        "CIFAR-100": Column(
            "cifar100",
            (*VGG_ACCURACIES, 76.9, 77.0, 77.7, 78.1, 78.0),
            {name: VGG19_100[name] for name in ("epochs", "rate_schedule")},
            also={"test_loss": (*VGG_LOSSES, 0.978, 0.955, 0.947, 0.949, 1.015)},
        ),
    },
)

FIG6 = table(
    "lcw/fig6",
    "training curves of VGG19 on CIFAR-100",
    VGG_AND_RESNET,
    beside=("test_loss",),
    orderings=VGG_ORDERINGS,
    full=PAPER.changed(**VGG19_100, augment="crop-flip"),
    full_cost=VGG_COST,
    cpu=VGG_CPU,
    cpu_cost=VGG_CPU_COST,
    # VGG19 is in the smoke preset of table 1.
    smoke={**VGG_SMOKE, "model": "cnn4"},
    rows=VGG_ROWS,
    columns={"CIFAR-100": Column("cifar100", VGG_ACCURACIES, also={"test_loss": VGG_LOSSES})},
)
