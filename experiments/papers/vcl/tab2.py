"""Table 2: three activations, four normalizers and the variance constancy loss, on CIFAR."""

from experiments.papers.grid import PAPER, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

#: Test errors in percent, (CIFAR-10, CIFAR-100), of the activation alone, with each normalizer, and
#: with the loss for n = 9, 7, 5, 3 and 2.
_ERRORS = {
    "ReLU": (
        (8.36, 32.8),
        (7.78, 29.1),
        (7.92, 30.7),
        (8.71, 31.9),
        (7.80, 30.8),
        (8.10, 30.5),
        (7.85, 30.4),
        (7.90, 30.6),
        (7.80, 30.3),
    ),
    "LReLU": (
        (6.70, 26.8),
        (7.08, 27.2),
        (7.00, 27.0),
        (7.07, 28.3),
        (6.60, 26.7),
        (6.65, 26.4),
        (6.48, 26.4),
        (6.57, 26.2),
        (6.45, 26.3),
    ),
    "ELU": (
        (6.98, 28.7),
        (6.63, 26.7),
        (6.75, 26.7),
        (6.71, 28.2),
        (6.70, 27.6),
        (6.33, 27.1),
        (6.15, 25.8),
        (6.22, 26.1),
        (6.15, 25.6),
    ),
}
_METHODS = ("none", "bn", "ln", "gn")
_SAMPLES = (9, 7, 5, 3, 2)
_ACTIVATIONS = {"ReLU": "relu", "LReLU": "leaky_relu_0.2", "ELU": "elu"}

#: Section 3: learning rate 0.05, 0.02 from epoch 180, then a tenth every 100 epochs.
FULL = PAPER.changed(
    model="elu11",
    epochs=500,
    batch_size=250,
    learning_rate=0.05,
    drops=((0.36, 0.4), (0.56, 0.04), (0.76, 0.004), (0.96, 0.0004)),
    weight_decay=1e-4,
    augment="crop-flip",
)


def _cells() -> tuple[Cell, ...]:
    cells = []
    for name, errors in _ERRORS.items():
        rows = [(name if m == "none" else f"{name}+{m}", m, {}) for m in _METHODS]
        rows += [(f"{name}+vcl (n = {n})", "vcl", {"sample_size": n}) for n in _SAMPLES]
        for (row, method, overrides), pair in zip(rows, errors, strict=True):
            for data, error in zip(("CIFAR-10", "CIFAR-100"), pair, strict=True):
                changes = {"activation": _ACTIVATIONS[name]}
                source = data.lower().replace("-", "")
                cells.append(Cell(row, method, data, error, source, changes, overrides))
    return tuple(cells)


ITEM = grid_item(
    "vcl/tab2",
    "test errors of the 11-layer network: activations, normalizers, the loss",
    "ELU + VCL is best; VCL helps every activation; BN helps ReLU and ELU but not LReLU",
    Grid(
        _cells(),
        (
            Ordering("ELU+vcl (n = 5)", "ELU+bn"),
            *(Ordering(f"{name}+vcl (n = 5)", name) for name in _ACTIVATIONS),
            Ordering("ReLU+bn", "ReLU"),
            Ordering("ELU+bn", "ELU"),
            Ordering("LReLU", "LReLU+bn"),
        ),
        as_error=True,
    ),
    presets(
        FULL,
        smoke_rows=("ELU", "ELU+vcl (n = 5)"),
        smoke_columns=("CIFAR-10",),
        cpu={
            "only_rows": (
                "ELU",
                "ELU+bn",
                "ELU+vcl (n = 5)",
                "ReLU",
                "ReLU+bn",
                "ReLU+vcl (n = 5)",
            ),
            "only_columns": ("CIFAR-10",),
            "epochs": 6,
        },
        cpu_cost="20 min on 2 CPU cores with --jobs 2",
        full_cost="2 GPU hours a run (estimated)",
    ),
    notes=("Units of the loss: a channel at a position, as in the public code of the authors.",),
)
