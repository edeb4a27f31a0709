"""Table 1 and Figure 6: VGG19 and ResNet-18 with batch normalization and constrained weights."""

from experiments.papers.grid import PAPER, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.item import Item
from experiments.papers.presets import presets

#: Test accuracies in percent, (CIFAR-10, CIFAR-100).
_ACCURACIES = {
    ("VGG19", "vgg19"): {
        "": (93.6, 73.2),
        "+LCW": (93.8, 74.1),
        "+WN": (93.1, 72.5),
        "+CWN": (93.4, 72.7),
        "+SN": (93.6, 73.3),
    },
    ("ResNet18", "resnet18"): {
        "": (95.2, 76.9),
        "+LCW": (95.2, 77.0),
        "+WN": (95.1, 77.7),
        "+CWN": (94.8, 78.1),
        "+SN": (95.2, 78.0),
    },
}

#: Section 6.2: 0.95 of the learning rate after every three of 300 epochs, on CIFAR-100 after every
#: five of 500.
_FULL = PAPER.changed(
    model="vgg19",
    batch_size=128,
    learning_rate=0.1,
    drops=tuple((step / 100, max(0.95**step, 0.01)) for step in range(1, 100)),
    weight_decay=5e-4,
    augment="crop-flip",
)


def _cells() -> tuple[Cell, ...]:
    cells = []
    for (name, model), rows in _ACCURACIES.items():
        for ending, pair in rows.items():
            for data, accuracy in zip(("CIFAR-10", "CIFAR-100"), pair, strict=True):
                source, method = data.lower().replace("-", ""), f"bn{ending.lower()}"
                changes = {} if model == _FULL.model else {"model": model}
                cells.append(Cell(name + ending, method, data, accuracy, source, changes))
    return tuple(cells)


def _item(
    name: str,
    title: str,
    column: str,
    epochs: int,
    smoke_model: str,
    rows: tuple[str, ...] = (),
) -> Item:
    return grid_item(
        name,
        title,
        "LCW improves VGG19 in accuracy and loss; on ResNet-18 it makes little difference",
        Grid(
            _cells(),
            (
                *(Ordering("VGG19+LCW", row) for row in ("VGG19", "VGG19+WN", "VGG19+CWN")),
                Ordering("VGG19+LCW", "VGG19", measure="test_loss"),
                Ordering("VGG19+LCW", "VGG19", measure="train_loss"),
            ),
        ),
        presets(
            _FULL.changed(epochs=epochs, only_rows=rows, only_columns=(column,)),
            smoke_rows=("VGG19", "VGG19+LCW"),
            smoke_columns=(column,),
            smoke={"model": smoke_model},
            cpu={"only_rows": ("VGG19", "VGG19+LCW", "VGG19+WN"), "epochs": 5},
            cpu_cost="30 min on 2 CPU cores (estimated)",
            full_cost="2 GPU hours a run (estimated)",
        ),
    )


TAB1 = _item(
    "lcw/tab1", "VGG19 and ResNet-18 with BN and constrained weights", "CIFAR-10", 300, "vgg19"
)
FIG6 = _item(
    "lcw/fig6",
    "training curves of VGG19 on CIFAR-100",
    "CIFAR-100",
    500,
    "cnn4",  # VGG19 is in that of table 1.
    tuple(f"VGG19{ending}" for ending in ("", "+LCW", "+WN", "+CWN", "+SN")),
)
