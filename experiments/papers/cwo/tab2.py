"""Table 2: small batches, with learning rates in proportion."""

from experiments.papers.cwo.protocols import CNN, FAST_AA, METHODS, PLAIN, SMOKE, WIDE_RESNET
from experiments.papers.grid import CIFAR, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

_FULL = CNN.changed(**WIDE_RESNET, **FAST_AA)

#: Errors by dataset, for batches of 4, 16 and 128.
_ERRORS = {
    ("CIFAR-10", "Ours"): (2.65, 2.64, 2.59),
    ("CIFAR-10", "BN"): (3.08, 2.80, 2.64),
    ("CIFAR-100", "Ours"): (15.12, 14.80, 16.40),
    ("CIFAR-100", "BN"): (17.98, 16.37, 16.57),
}
#: By the size of batches: what changes with it.
_SIZES = {size: {"batch_size": size, "rate_scale": size / 128} for size in (4, 16, 128)}

_CELLS = tuple(
    Cell(f"{row}, B = {size}", METHODS[row], data, error, CIFAR[data], changes)
    for (data, row), errors in _ERRORS.items()
    for (size, changes), error in zip(_SIZES.items(), errors, strict=True)
)

ITEM = grid_item(
    "cwo/tab2",
    "errors with batches of 4, 16 and 128 samples",
    "BN degrades with small batches; ours does not",
    Grid(
        _CELLS,
        (
            Ordering("Ours, B = 4", "BN, B = 4"),
            Ordering("Ours, B = 16", "BN, B = 16"),
            Ordering("BN, B = 128", "BN, B = 4"),
        ),
        as_error=True,
    ),
    presets(
        _FULL,
        smoke_rows=("Ours, B = 16", "BN, B = 16"),
        smoke_columns=("CIFAR-10",),
        smoke=SMOKE,
        cpu={
            **PLAIN,
            "learning_rate": 0.1,
            "channels": 8,
            "epochs": 6,
            "augment": "crop-flip",
            "only_columns": ("CIFAR-10",),
        },
        cpu_cost="10 min of one CPU core",
        full_cost="10 GPU hours a run, more for small batches (estimated)",
    ),
)
