"""Table 3: Tiny ImageNet."""

from experiments.papers.grid import Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets
from experiments.papers.vcl.tab2 import FULL

_CELLS = (
    Cell("ELU", "none", "", 39.2, "tiny-imagenet"),
    Cell("ELU+bn", "bn", "", 40.2, "tiny-imagenet"),
    Cell("ELU+vcl (n = 2)", "vcl", "", 37.3, "tiny-imagenet", overrides={"sample_size": 2}),
)

_FULL = FULL.changed(
    activation="elu",
    channels=128,
    epochs=250,
    rate_schedule=((0.2, 0.4), (0.4, 0.04), (0.72, 0.004)),
)

ITEM = grid_item(
    "vcl/tab3",
    "validation errors on Tiny ImageNet, twice as wide",
    "VCL 0.373 against 0.392 without normalization and 0.402 with BN",
    Grid(
        _CELLS,
        (Ordering("ELU+vcl (n = 2)", "ELU"), Ordering("ELU", "ELU+bn")),
        as_error=True,
        literature={"ResNet-110": 46.5, "Wide-ResNet-32": 36.5, "DenseNet-40": 39.0},
    ),
    presets(
        _FULL,
        smoke_rows=("ELU", "ELU+vcl (n = 2)"),
        smoke={"model": "cnn4"},
        cpu={"epochs": 5},
        cpu_cost="15 min on 2 CPU cores (estimated); any folder of small images",
        full_cost="10 GPU hours a run (estimated)",
    ),
)
