"""Figure 5: fifty layers of sigmoids."""

from experiments.papers.grid import CIFAR, PAPER, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

_METHODS = ("lcw", "bn", "sl", "wn", "cwn", "sn", "bn+lcw", "bn+wn", "bn+cwn", "bn+sn", "bn+sl")

#: Section 6.1: 0.95 of the learning rate after every epoch, down to a hundredth.
_DROPS = tuple((epoch / 100, max(0.95**epoch, 0.01)) for epoch in range(1, 100))

_FULL = PAPER.changed(
    model="sigmoid50", epochs=100, rate_schedule=_DROPS, weight_decay=1e-4, augment="crop-flip"
)

ITEM = grid_item(
    "lcw/fig5",
    "training 50 hidden sigmoid layers of 256 units",
    "WN and SN do not train at all; LCW converges fastest; BN+LCW generalizes best",
    Grid(
        tuple(
            Cell(method.upper(), method, data, None, source)
            for data, source in CIFAR.items()
            for method in _METHODS
        ),
        (
            *(Ordering("LCW", row, measure="train_loss") for row in ("BN", "SL", "CWN")),
            *(Ordering("LCW", row, measure="train_accuracy") for row in ("WN", "SN")),
            Ordering("BN+LCW", "LCW"),
            Ordering("BN+LCW", "BN"),
        ),
    ),
    presets(
        _FULL,
        smoke_rows=("LCW", "WN"),
        smoke_columns=("CIFAR-10",),
        # Fifty layers take two minutes to compile.
        smoke={"model": "mlp", "activation": "sigmoid", "width": 32, "augment": "none"},
        cpu={
            "channels": _FULL.channels,  # There are none.
            "only_rows": ("LCW", "BN", "SL", "WN", "CWN", "SN", "BN+LCW"),
            "only_columns": ("CIFAR-10",),
            "augment": "none",
            "epochs": 20,
            "rows": 5000,
            "rate_schedule": (),
            "batch_size": 128,
        },
        cpu_cost="15 min on 2 CPU cores with --jobs 2",
        full_cost="20 min on one GPU a run (estimated)",
    ),
)
