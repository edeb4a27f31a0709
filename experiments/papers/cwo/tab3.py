"""Table 3: what centring, the sphere and the noise contribute."""

from experiments.papers.cwo.protocols import CNN, PLAIN, SMOKE, WIDE_RESNET
from experiments.papers.grid import CIFAR, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

#: (parts, recipe without noise, with noise) and errors: CIFAR-10 without, with; CIFAR-100 likewise.
_ROWS = (
    ("neither", "cwo-none", "cwo-noise", (5.36, 4.97, 24.15, 21.85)),
    ("centre", "cwo-centre", "cwo-centre-noise", (5.58, 4.66, 23.43, 20.43)),
    ("sphere", "cwo-sphere", "cwo-sphere-noise", (5.68, 5.29, 22.76, 20.88)),
    ("both", "cwo-centre-sphere", "cwo", (4.45, 4.19, 20.61, 18.31)),
)


_CELLS = tuple(
    Cell(row, method, data, error, source)
    for parts, quiet, noisy, errors in _ROWS
    for (data, source), pair in zip(CIFAR.items(), (errors[:2], errors[2:]), strict=True)
    for row, method, error in zip((parts, f"{parts} + noise"), (quiet, noisy), pair, strict=True)
)

ITEM = grid_item(
    "cwo/tab3",
    "the ablation: zero mean, unit sphere, noise",
    "both constraints together are better than either alone, and noise improves every one",
    Grid(
        _CELLS,
        (
            *(Ordering("both", rival) for rival in ("neither", "centre", "sphere")),
            *(Ordering(f"{parts} + noise", parts) for parts, *_ in _ROWS),
        ),
        as_error=True,
    ),
    presets(
        CNN.changed(**WIDE_RESNET),
        smoke_rows=("both", "both + noise"),
        smoke_columns=("CIFAR-10",),
        smoke=SMOKE,
        cpu={**PLAIN, "learning_rate": 0.05, "epochs": 6, "only_columns": ("CIFAR-10",)},
        cpu_cost="20 min on 2 CPU cores with --jobs 2",
        full_cost="10 GPU hours a run (estimated)",
    ),
)
