"""Table 6: ImageNet, ResNet-50."""

from experiments.papers.cwo.protocols import SMOKE
from experiments.papers.grid import PAPER, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

#: Top-1 and top-5 accuracies; those of the rivals but the plain network are the paper's citations.
_ACCURACIES = {
    "Ours": ("cwo", 75.15, 92.37),
    "Plain": ("none", 73.76, 91.15),
    "GN": ("gn", 75.19, 92.54),
    "WS+GN": ("ws+gn", 76.28, 93.01),
    "BN": ("bn", 75.70, 92.81),
    "WS+BN": ("ws+bn", 76.24, 92.87),
}

#: Section 4.3.1; the weight decay is not given, and 1e-4 is the usual one.
_FULL = PAPER.changed(
    model="resnet50",
    epochs=100,
    batch_size=256,
    rate_schedule=((0.3, 0.1), (0.6, 0.01), (0.9, 0.001)),
    weight_decay=1e-4,
    growing_noise=1.0,
    augment="resized-crop-flip",
    side=224,
    scores=("top5_accuracy",),
    seeds=1,
)

ITEM = grid_item(
    "cwo/tab6",
    "top-1 and top-5 accuracy on ImageNet, ResNet-50",
    "ours 75.15 against 73.76 without normalization and 75.19 with GN",
    Grid(
        tuple(
            Cell(row, method, "", top1, "imagenet", also={"top5_accuracy": top5})
            for row, (method, top1, top5) in _ACCURACIES.items()
        ),
        (Ordering("Ours", "Plain"), Ordering("WS+BN", "Ours")),
        beside=("top5_accuracy",),
    ),
    presets(
        _FULL,
        smoke_rows=("Ours", "Plain"),
        smoke=SMOKE,
        cpu={"model": "resnet18", "augment": "crop-flip", "learning_rate": 0.05, "epochs": 5},
        cpu_cost="1 h on 2 CPU cores (estimated); any folder of small images",
        full_cost="days on 8 GPUs (estimated)",
    ),
)
