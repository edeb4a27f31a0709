"""Figures 2 and 3: batch normalization taken apart, trained."""

from experiments.papers.grid import PAPER, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

RATE_DECAY = 1e-4

#: Appendix B names momentum, and a decay of the rate "by a factor of 1e-4 each step", which is read
#: as 1 - 1e-4 of it after each. Neither the initial rate nor the epochs nor the weight decay is
#: given.
_FULL = PAPER.changed(model="resnet18", rate_decay=RATE_DECAY, augment="crop-flip")
_SILENT = (
    "The paper gives no initial learning rate, no number of epochs and no weight decay; the "
    "settings below are assumptions.",
)
_LARGE = {"batch_size": 1024, "learning_rate": 0.8}

FIG2AB = grid_item(
    "bn/fig2ab",
    "BN against population normalization with gamma decay, ResNet-18",
    "BN loses with a batch of 1024; PN + gamma decay makes up for it and does better than BN",
    Grid(
        (
            Cell("BN, M = 128", "bn", "", None, "cifar10"),
            Cell("BN, M = 1024", "bn", "", None, "cifar10", _LARGE),
            Cell("PN", "pn", "", None, "cifar10"),
            Cell("PN + gamma decay", "pn+gamma-decay", "", None, "cifar10"),
        ),
        (
            Ordering("BN, M = 128", "BN, M = 1024"),
            Ordering("PN + gamma decay", "PN"),
            Ordering("PN + gamma decay", "BN, M = 128"),
        ),
    ),
    presets(
        _FULL,
        smoke_rows=("BN, M = 128", "PN + gamma decay"),
        smoke={"model": "mlp", "width": 32, "augment": "none"},
        cpu={"model": "cnn4", "epochs": 8},
        cpu_cost="30 min on 2 CPU cores (estimated)",
        full_cost="5 GPU hours a run (estimated)",
    ),
    notes=_SILENT,
)

_HALVES = ("WN + mean-only BN", "WN + variance-only BN")

FIG2CD = grid_item(
    "bn/fig2cd",
    "SGD, BN, WN and WN with half of BN, on four convolutions",
    "BN generalizes best; mean-only and variance-only BN improve WN, each by less",
    Grid(
        tuple(
            Cell(row, method, "", None, "cifar10")
            for row, method in (
                ("SGD", "none"),
                ("BN", "bn"),
                ("WN", "wn"),
                ("WN + mean-only BN", "wn+mean-only-bn"),
                ("WN + variance-only BN", "wn+variance-only-bn"),
            )
        ),
        (
            *(Ordering("BN", row) for row in ("SGD", "WN", *_HALVES)),
            *(Ordering(row, "WN") for row in _HALVES),
        ),
        # The figure shows losses. With a loss alone, what has not trained can look better than what
        # overfits.
        beside=("train_accuracy", "test_loss", "train_loss"),
    ),
    presets(
        _FULL.changed(model="cnn4", augment="none"),
        smoke_rows=("BN", "WN + mean-only BN"),
        cpu={"learning_rate": 0.05},
        cpu_cost="20 min on 2 CPU cores with --jobs 2",
        full_cost="1 GPU hour a run (estimated)",
    ),
    notes=_SILENT,
)

FIG2GH = grid_item(
    "bn/fig2gh",
    "dropout after BN and after WN, at large batches, ResNet-18",
    "dropout restores BN at M = 1024, and lifts WN from 0.90 to 0.93, still below BN",
    Grid(
        (
            Cell("BN, M = 128", "bn", "", None, "cifar10"),
            Cell("BN, M = 1024", "bn", "", None, "cifar10", _LARGE),
            Cell("BN + dropout, M = 1024", "bn+dropout", "", None, "cifar10", _LARGE),
            Cell("WN, M = 1024", "wn", "", 90.0, "cifar10", _LARGE),
            Cell("WN + dropout, M = 1024", "wn+dropout", "", 93.0, "cifar10", _LARGE),
        ),
        (
            Ordering("BN, M = 128", "BN, M = 1024"),
            Ordering("BN + dropout, M = 1024", "BN, M = 1024"),
            Ordering("WN + dropout, M = 1024", "WN, M = 1024"),
            Ordering("BN + dropout, M = 1024", "WN + dropout, M = 1024"),
            Ordering("BN, M = 128", "WN + dropout, M = 1024"),
        ),
    ),
    presets(
        _FULL,
        smoke_rows=("BN, M = 128", "WN + dropout, M = 1024"),
        smoke={"model": "mlp", "width": 32, "augment": "none", "rows": 1024},
        cpu={"model": "cnn4", "epochs": 8, "rows": 4000},
        cpu_cost="30 min on 2 CPU cores (estimated)",
        full_cost="5 GPU hours a run (estimated)",
    ),
    notes=_SILENT,
)

#: Appendix B.1: a tenth of the rate after 30, 60 and 90 epochs.
_DROPS = ((0.3, 0.1), (0.6, 0.01), (0.9, 0.001))

FIG3 = grid_item(
    "bn/fig3",
    "PN + gamma decay on 32 x 32 ImageNet, ResNet-18",
    "BN at M = 1024 overtrains; PN + gamma decay is comparable to BN at M = 128",
    Grid(
        (
            Cell("BN, M = 128", "bn", "", None, "imagenet32"),
            Cell("BN, M = 1024", "bn", "", None, "imagenet32", _LARGE),
            Cell("PN + gamma decay", "pn+gamma-decay", "", None, "imagenet32"),
        ),
        (Ordering("BN, M = 128", "BN, M = 1024"), Ordering("PN + gamma decay", "BN, M = 1024")),
    ),
    presets(
        _FULL.changed(epochs=100, rate_decay=0.0, rate_schedule=_DROPS, seeds=1),
        smoke_rows=("BN, M = 128", "PN + gamma decay"),
        smoke={"model": "mlp", "width": 32, "augment": "none"},
        cpu={"model": "cnn4", "epochs": 5},
        cpu_cost="30 min on 2 CPU cores (estimated); any folder of small images",
        full_cost="days on 8 GPUs (estimated)",
    ),
    notes=(
        "The rate of 0.1 and its drops after 30, 60 and 90 epochs are the paper's (Appendix B.1); "
        "100 epochs, the weight decay and the augmentation are assumptions.",
    ),
)
