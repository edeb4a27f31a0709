"""Table 1: top-1 errors of three networks on CIFAR-10 and CIFAR-100, with two augmentations."""

from experiments.papers.cwo.protocols import CNN, FAST_AA, METHODS, RESNET, WIDE_RESNET
from experiments.papers.grid import CIFAR, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

#: (dataset, augmentation, network) and the errors in the order of METHODS.
_ERRORS = {
    ("CIFAR-10", "standard", "CNN"): (5.50, 5.36, 6.45, 5.43, 5.71),
    ("CIFAR-10", "standard", "ResNet-110"): (5.65, 5.68, 6.34, 5.52, 6.69),
    ("CIFAR-10", "standard", "WRN-28-10"): (4.19, 3.70, 5.01, 4.78, 4.67),
    ("CIFAR-10", "FastAA", "CNN"): (4.18, 4.40, 4.93, 4.65, 4.37),
    ("CIFAR-10", "FastAA", "ResNet-110"): (4.26, 4.11, 6.76, 3.92, 5.85),
    ("CIFAR-10", "FastAA", "WRN-28-10"): (2.59, 2.64, 3.68, 3.42, 3.29),
    ("CIFAR-100", "standard", "CNN"): (24.26, 25.11, 29.28, 25.51, 26.27),
    ("CIFAR-100", "standard", "ResNet-110"): (25.16, 26.28, 29.75, 25.55, 28.51),
    ("CIFAR-100", "standard", "WRN-28-10"): (18.31, 18.48, 22.63, 19.82, 22.62),
    ("CIFAR-100", "FastAA", "CNN"): (21.03, 22.23, 25.34, 21.87, 22.31),
    ("CIFAR-100", "FastAA", "ResNet-110"): (21.87, 21.84, 28.90, 22.10, 27.83),
    ("CIFAR-100", "FastAA", "WRN-28-10"): (16.40, 16.57, 19.96, 19.18, 19.41),
}
_NETWORKS = {"CNN": {}, "ResNet-110": RESNET, "WRN-28-10": WIDE_RESNET}
_AUGMENTATIONS = {"standard": {}, "FastAA": FAST_AA}
_CNN = "CNN, CIFAR-10, standard"

_CELLS = tuple(
    Cell(row, method, f"{network}, {data}, {augmentation}", error, CIFAR[data], changes)
    for (data, augmentation, network), errors in _ERRORS.items()
    for changes in [_NETWORKS[network] | _AUGMENTATIONS[augmentation]]
    for (row, method), error in zip(METHODS.items(), errors, strict=True)
)

ITEM = grid_item(
    "cwo/tab1",
    "top-1 errors with constrained weights and with normalized activations",
    "ours is best or close to BN everywhere, and always better than GN",
    Grid(
        _CELLS,
        (
            *(Ordering("Ours", other, margin=1.0) for other in ("BN", "WS+BN")),
            *(Ordering("Ours", other) for other in ("GN", "WS+GN")),
            Ordering("BN", "GN"),
        ),
        as_error=True,
    ),
    presets(
        CNN,
        smoke_rows=("Ours", "BN"),
        smoke_columns=(_CNN,),
        cpu={"only_columns": (_CNN,), "learning_rate": 0.05, "epochs": 6},
        cpu_cost="10 min on 2 CPU cores with --jobs 2",
        full_cost="1 GPU hour a CNN run, 10 a WRN-28-10 run (estimated)",
    ),
)
