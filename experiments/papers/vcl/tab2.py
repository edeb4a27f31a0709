"""Table 2: three activations, four normalizers and the variance constancy loss, on CIFAR."""

from experiments.papers.grid import CIFAR, PAPER, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.presets import presets

#: Test errors in percent of the activation alone, with each normalizer, and with the loss for
#: n = 9, 7, 5, 3 and 2.
_ERRORS = {
    ("ReLU", "CIFAR-10"): (8.36, 7.78, 7.92, 8.71, 7.80, 8.10, 7.85, 7.90, 7.80),
    ("ReLU", "CIFAR-100"): (32.8, 29.1, 30.7, 31.9, 30.8, 30.5, 30.4, 30.6, 30.3),
    ("LReLU", "CIFAR-10"): (6.70, 7.08, 7.00, 7.07, 6.60, 6.65, 6.48, 6.57, 6.45),
    ("LReLU", "CIFAR-100"): (26.8, 27.2, 27.0, 28.3, 26.7, 26.4, 26.4, 26.2, 26.3),
    ("ELU", "CIFAR-10"): (6.98, 6.63, 6.75, 6.71, 6.70, 6.33, 6.15, 6.22, 6.15),
    ("ELU", "CIFAR-100"): (28.7, 26.7, 26.7, 28.2, 27.6, 27.1, 25.8, 26.1, 25.6),
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
    rate_schedule=((0.36, 0.4), (0.56, 0.04), (0.76, 0.004), (0.96, 0.0004)),
    weight_decay=1e-4,
    augment="crop-flip",
)


#: What follows the activation in a row's name, the method, and its settings.
_ROWS: tuple[tuple[str, str, dict[str, int]], ...] = (
    *(("" if method == "none" else f"+{method}", method, {}) for method in _METHODS),
    *((f"+vcl (n = {n})", "vcl", {"sample_size": n}) for n in _SAMPLES),
)

_CELLS = tuple(
    Cell(name + row, method, data, error, source, {"activation": key}, overrides)
    for name, key in _ACTIVATIONS.items()
    for (row, method, overrides), *errors in zip(
        _ROWS, *(_ERRORS[name, data] for data in CIFAR), strict=True
    )
    for (data, source), error in zip(CIFAR.items(), errors, strict=True)
)

ITEM = grid_item(
    "vcl/tab2",
    "test errors of the 11-layer network: activations, normalizers, the loss",
    "ELU + VCL is best; VCL helps every activation; BN helps ReLU and ELU but not LReLU",
    Grid(
        _CELLS,
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
            "only_rows": tuple(
                name + row for name in ("ELU", "ReLU") for row in ("", "+bn", "+vcl (n = 5)")
            ),
            "only_columns": ("CIFAR-10",),
            "epochs": 6,
        },
        cpu_cost="20 min on 2 CPU cores with --jobs 2",
        full_cost="2 GPU hours a run (estimated)",
    ),
    notes=("Units of the loss: a channel at a position, as in the public code of the authors.",),
)
