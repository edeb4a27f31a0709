"""Table 1: NormProp against batch normalization."""

from experiments.papers.grid import Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.normprop.protocols import SVHN, TABLE
from experiments.papers.presets import presets

#: Test errors in percent, (NormProp, batch normalization).
_ERRORS = {
    ("CIFAR-10", "cifar10", "none"): (9.11, 9.41),
    ("CIFAR-10, flips", "cifar10", "flip"): (7.47, 7.25),
    ("CIFAR-100", "cifar100", "none"): (32.19, 35.32),
    ("CIFAR-100, flips", "cifar100", "flip"): (29.24, 30.26),
    ("SVHN", "svhn", "none"): (1.88, 2.25),
}

_METHODS = {"NormProp": "normprop-batch", "BN": "bn"}

_CELLS = tuple(
    Cell(row, method, column, error, source, changes)
    for (column, source, augment), errors in _ERRORS.items()
    for changes in [{"augment": augment} | (SVHN if source == "svhn" else {})]
    for (row, method), error in zip(_METHODS.items(), errors, strict=True)
)

ITEM = grid_item(
    "normprop/tab1",
    "test errors of the network in network",
    "NormProp is better than BN, but for CIFAR-10 with flips",
    Grid(
        _CELLS,
        (
            Ordering("NormProp", "BN", "CIFAR-10"),
            Ordering("BN", "NormProp", "CIFAR-10, flips"),
            Ordering("NormProp", "BN", "CIFAR-100"),
            Ordering("NormProp", "BN", "CIFAR-100, flips"),
            Ordering("NormProp", "BN", "SVHN"),
        ),
        as_error=True,
    ),
    presets(
        TABLE,
        smoke_rows=("NormProp", "BN"),
        smoke_columns=("CIFAR-10",),
        cpu={"only_columns": ("CIFAR-10", "CIFAR-10, flips"), "epochs": 6},
        cpu_cost="15 min on 2 CPU cores with --jobs 2",
        full_cost="2 GPU hours a run (estimated)",
    ),
    notes=("Weight decay: the paper says 0.0005 to 0.005; the lower end is taken.",),
)
