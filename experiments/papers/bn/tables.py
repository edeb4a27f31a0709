"""The trainings of Luo et al. 2019: batch normalization and parts of it, at several batch sizes."""

from experiments.papers.bn.fig2ef import view
from experiments.papers.grid import PAPER, Column, Row, claims, drops
from experiments.papers.table import table

#: Appendix B names momentum, and a decay of the rate "by a factor of 1e-4 each step", which is read
#: as 1 - 1e-4 of it after each. The paper gives no other setting.
DECAY = {"rate_decay": 1e-4}

#: Batches of 1024, with the learning rate in proportion.
LARGE = {"batch_size": 1024, "learning_rate": 0.8}
BN_ROWS = {"BN, M = 128": Row("bn"), "BN, M = 1024": Row("bn", LARGE)}
ONLY_CIFAR = {"": Column("cifar10")}

RESNET_COST, RESNET_CPU_COST = "5 GPU hours a run (estimated)", "30 min on 2 CPU cores (estimated)"
RESNET = PAPER.changed(model="resnet18", augment="crop-flip")
MLP = {"model": "mlp", "width": 32, "augment": "none"}

FIG2AB = table(
    "bn/fig2ab",
    "BN against population normalization with gamma decay, ResNet-18",
    "BN loses with a batch of 1024; PN + gamma decay makes up for it and does better than BN",
    orderings=(
        *claims("BN, M = 128", "BN, M = 1024"),
        *claims("PN + gamma decay", "PN", "BN, M = 128"),
    ),
    full=RESNET.changed(**DECAY),
    full_cost=RESNET_COST,
    cpu={"model": "cnn4", "epochs": 8},
    cpu_cost=RESNET_CPU_COST,
    smoke={**MLP, "only_rows": ("BN, M = 128", "PN + gamma decay")},
    rows={**BN_ROWS, "PN": Row("pn"), "PN + gamma decay": Row("pn+gamma-decay")},
    columns=ONLY_CIFAR,
)

#: The figure shows losses; with a loss alone, what has not trained can look better than what
#: overfits.
FIG2CD = table(
    "bn/fig2cd",
    "SGD, BN, WN and WN with half of BN, on four convolutions",
    "BN generalizes best; mean-only and variance-only BN improve WN, each by less",
    beside=("train_accuracy", "test_loss", "train_loss"),
    orderings=(
        *claims("BN", "SGD", "WN", "WN + mean-only BN", "WN + variance-only BN"),
        *claims("WN + mean-only BN", "WN"),
        *claims("WN + variance-only BN", "WN"),
    ),
    full=PAPER.changed(model="cnn4", **DECAY),
    full_cost="1 GPU hour a run (estimated)",
    cpu={"learning_rate": 0.05},
    cpu_cost="20 min on 2 CPU cores with --jobs 2",
    smoke={"only_rows": ("BN", "WN + mean-only BN")},
    rows={
        "SGD": Row("none"),
        "BN": Row("bn"),
        "WN": Row("wn"),
        "WN + mean-only BN": Row("wn+mean-only-bn"),
        "WN + variance-only BN": Row("wn+variance-only-bn"),
    },
    columns=ONLY_CIFAR,
)

#: Layers 1 to 4 are convolutions, 5 is dense. The learning rate is that of batches of 128.
FIG2EF = table(
    "bn/fig2ef",
    "BN at one layer at a time: gamma^2 and the validation loss against the batch size",
    "gamma^2 grows with the batch size wherever BN stands, and so does the validation loss",
    measure="test_loss",
    beside=("gamma_squared",),
    view=view,
    full=PAPER.changed(
        model="cnn4", epochs=100, learning_rate=0.01, scores=("gamma_squared",), **DECAY
    ),
    full_cost="1 GPU hour a run, 60 runs (estimated)",
    cpu={
        "only_rows": ("BN at layer 1", "BN at layer 4", "BN at layer 5"),
        "only_columns": ("M = 16", "M = 64", "M = 256"),
        "learning_rate": 0.025,
        "train_rows": 2048,
    },
    cpu_cost="20 min on 2 CPU cores (estimated)",
    smoke={"only_rows": ("BN at layer 4",), "only_columns": ("M = 16", "M = 64")},
    rows={f"BN at layer {layer}": Row("bn", {"norm_at": layer}) for layer in range(1, 6)},
    columns={
        f"M = {size}": Column(
            "cifar10", changes={"batch_size": size, "rate_scale": size / PAPER.batch_size}
        )
        for size in (16, 64, 256, 1024)
    },
)

FIG2GH = table(
    "bn/fig2gh",
    "dropout after BN and after WN, at large batches, ResNet-18",
    "dropout restores BN at M = 1024, and lifts WN from 0.90 to 0.93, still below BN",
    orderings=(
        *claims("BN, M = 128", "BN, M = 1024"),
        *claims("BN + dropout, M = 1024", "BN, M = 1024"),
        *claims("WN + dropout, M = 1024", "WN, M = 1024"),
        *claims("BN + dropout, M = 1024", "WN + dropout, M = 1024"),
        *claims("BN, M = 128", "WN + dropout, M = 1024"),
    ),
    full=RESNET.changed(**DECAY),
    full_cost=RESNET_COST,
    cpu={"model": "cnn4", "epochs": 8, "train_rows": 4000},
    cpu_cost=RESNET_CPU_COST,
    smoke={**MLP, "only_rows": ("BN, M = 128", "WN + dropout, M = 1024"), "train_rows": 1024},
    rows={
        **BN_ROWS,
        "BN + dropout, M = 1024": Row("bn+dropout", LARGE),
        "WN, M = 1024": Row("wn", LARGE),
        "WN + dropout, M = 1024": Row("wn+dropout", LARGE),
    },
    columns={"": Column("cifar10", (None, None, None, 90.0, 93.0))},
)

FIG3 = table(
    "bn/fig3",
    "PN + gamma decay on 32 x 32 ImageNet, ResNet-18",
    "BN at M = 1024 overtrains; PN + gamma decay is comparable to BN at M = 128",
    orderings=(
        *claims("BN, M = 128", "BN, M = 1024"),
        *claims("PN + gamma decay", "BN, M = 1024"),
    ),
    full=RESNET.changed(
        epochs=100, rate_schedule=drops(100, {30: 0.1, 60: 0.01, 90: 0.001}), seeds=1
    ),
    full_cost="days on 8 GPUs (estimated)",
    cpu={"model": "cnn4", "epochs": 5},
    cpu_cost="30 min on 2 CPU cores (estimated); any folder of small images",
    smoke={**MLP, "only_rows": ("BN, M = 128", "PN + gamma decay")},
    rows={**BN_ROWS, "PN + gamma decay": Row("pn+gamma-decay")},
    columns={"": Column("imagenet32")},
)
