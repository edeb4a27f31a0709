"""The tables of Arpit et al. 2016: the network in network with propagated normalization and BN."""

from experiments.papers.grid import PAPER, Column, Row, claims, decays
from experiments.papers.speed import timing
from experiments.papers.table import table

#: Section 5: the network, batches and rates, 200 epochs with a rate that is halved every 25. The
#: weight decay is the lower end of the paper's 0.0005 to 0.005.
NIN = PAPER.changed(
    model="nin", batch_size=50, learning_rate=0.05, epochs=200, rate_schedule=decays(200, 25, 0.5)
)
#: Sections 5.1 to 5.4: the rate is halved every ten epochs; 5,000 training rows are held out, and
#: curves are those of the test rows.
FIFTY = NIN.changed(epochs=50, rate_schedule=decays(50, 10, 0.5), held_out=5000)
THIRTY = NIN.changed(epochs=30, rate_schedule=decays(30, 10, 0.5), held_out=5000)

#: The rates of section 5.1 by batch size; those of 1 and 200 samples are assumed.
BATCH_1 = {"batch_size": 1, "learning_rate": 0.001}
BATCH_50 = {"batch_size": 50, "learning_rate": 0.05}
BATCH_100 = {"batch_size": 100, "learning_rate": 0.08}
BATCH_200 = {"batch_size": 200, "learning_rate": 0.15}

MLP = {"model": "mlp", "width": 32}

FIG1 = table(
    "normprop/fig1",
    "normalizing the data over all rows or over each minibatch",
    "no difference: 90.35% at best, in 30 epochs",
    orderings=(
        *claims("global, batch 50", "batch, batch 50", margin=1.0),
        *claims("global, batch 100", "batch, batch 100", margin=1.0),
        *claims("batch, batch 50", "global, batch 50", margin=1.0),
        *claims("batch, batch 100", "global, batch 100", margin=1.0),
    ),
    full=THIRTY,
    full_cost="1 GPU hour a run (estimated)",
    cpu={"epochs": 8},
    cpu_cost="10 min on 2 CPU cores (estimated)",
    smoke={**MLP, "only_rows": ("global, batch 50", "batch, batch 50")},
    rows={
        "global, batch 50": Row("normprop", BATCH_50),
        "global, batch 100": Row("normprop", BATCH_100),
        "batch, batch 50": Row("normprop-batch", BATCH_50),
        "batch, batch 100": Row("normprop-batch", BATCH_100),
    },
    # The best of section 5.1, by data normalized by batches of 50 (its footnote).
    columns={"": Column("cifar10", (None, None, 90.35, None))},
)

FIG3 = table(
    "normprop/fig3",
    "convergence in the first epochs, NormProp and BN",
    "NormProp's validation accuracy is higher and more stable in the first epochs",
    orderings=(
        *claims("NormProp", "BN", measure="early_accuracy"),
        *claims("NormProp", "BN", measure="early_change"),
    ),
    full=FIFTY,
    full_cost="1 GPU hour a run (estimated)",
    cpu={"epochs": 8},
    cpu_cost="5 min on 2 CPU cores (estimated)",
    smoke={**MLP, "only_rows": ("NormProp", "BN")},
    rows={"NormProp": Row("normprop-batch"), "BN": Row("bn")},
    columns={"": Column("cifar10")},
)

FIG4 = table(
    "normprop/fig4",
    "batches of 1 to 200 samples",
    "NormProp does slightly better with smaller batches, down to one sample",
    orderings=(*claims("batch 50", "batch 200"), *claims("batch 1", "batch 200")),
    full=FIFTY,
    full_cost="1 GPU hour a run, a day for single samples (estimated)",
    cpu={"epochs": 4, "train_rows": 1000},
    cpu_cost="20 min on 2 CPU cores (estimated)",
    smoke={**MLP, "only_rows": ("batch 1", "batch 50"), "train_rows": 64},
    rows={
        "batch 1": Row("normprop", BATCH_1),
        "batch 50": Row("normprop", BATCH_50),
        "batch 100": Row("normprop", BATCH_100),
        "batch 200": Row("normprop", BATCH_200),
    },
    columns={"": Column("cifar10")},
)

#: Section 5.5. Of SVHN 400 images of each class of the training images and 200 of the extra ones
#: are held out; here as many, at random.
SVHN = {
    "batch_size": 100,
    "learning_rate": 0.08,
    "epochs": 25,
    "rate_schedule": decays(25, 5, 0.5),
    "held_out": 6000,
}
FLIP = {"augment": "flip"}

TAB1 = table(
    "normprop/tab1",
    "test errors of the network in network",
    "NormProp is better than BN, but for CIFAR-10 with flips",
    as_error=True,
    orderings=(
        *claims("NormProp", "BN", column="CIFAR-10"),
        *claims("BN", "NormProp", column="CIFAR-10, flips"),
        *claims("NormProp", "BN", column="CIFAR-100"),
        *claims("NormProp", "BN", column="CIFAR-100, flips"),
        *claims("NormProp", "BN", column="SVHN"),
    ),
    full=NIN.changed(held_out=5000),
    full_cost="2 GPU hours a run (estimated)",
    cpu={"only_columns": ("CIFAR-10", "CIFAR-10, flips"), "epochs": 6},
    cpu_cost="15 min on 2 CPU cores with --jobs 2",
    smoke={"only_rows": ("NormProp", "BN")},
    rows={"NormProp": Row("normprop-batch"), "BN": Row("bn")},
    columns={
        "CIFAR-10": Column("cifar10", (9.11, 9.41)),
        "CIFAR-10, flips": Column("cifar10", (7.47, 7.25), FLIP),
        "CIFAR-100": Column("cifar100", (32.19, 35.32)),
        "CIFAR-100, flips": Column("cifar100", (29.24, 30.26), FLIP),
        "SVHN": Column("svhn", (1.88, 2.25), SVHN),
    },
)

#: Section 5.6. The paper has no time without normalization, so its baseline here is NormProp.
EPOCH_SECONDS = {"normprop": 84, "bn": 96}

SPEED = timing(
    "normprop/speed",
    "time of training steps of the network in network",
    "an epoch of CIFAR-10 takes 84 s with NormProp and 96 s with BN",
    {
        method: {"Titan X, NormProp = 1": seconds / EPOCH_SECONDS["normprop"]}
        for method, seconds in EPOCH_SECONDS.items()
    },
    model="nin",
    activation="relu",
    batch_size=50,
)
