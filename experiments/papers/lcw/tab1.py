"""Table 1 and Figure 6: VGG19 and ResNet-18 with batch normalization and constrained weights."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from experiments.papers.grid import CIFAR, PAPER, Cell, Grid, Ordering, Protocol
from experiments.papers.grid_report import grid_item
from experiments.papers.item import Item
from experiments.papers.presets import presets

#: (test accuracy in percent, test loss) on CIFAR-10 and on CIFAR-100.
_TESTED = {
    "VGG19": {
        "": ((93.6, 0.354), (73.2, 1.788)),
        "+LCW": ((93.8, 0.332), (74.1, 1.569)),
        "+WN": ((93.1, 0.391), (72.5, 1.914)),
        "+CWN": ((93.4, 0.372), (72.7, 1.827)),
        "+SN": ((93.6, 0.358), (73.3, 1.644)),
    },
    "ResNet18": {
        "": ((95.2, 0.204), (76.9, 0.978)),
        "+LCW": ((95.2, 0.187), (77.0, 0.955)),
        "+WN": ((95.1, 0.206), (77.7, 0.947)),
        "+CWN": ((94.8, 0.216), (78.1, 0.949)),
        "+SN": ((95.2, 0.206), (78.0, 1.015)),
    },
}

#: The last ten epochs' mean is what the table shows.
_LAST = 10

#: Section 6.2: 0.95 of the learning rate after every three of 300 epochs, on CIFAR-100 after every
#: five of 500.
_FULL = PAPER.changed(
    model="vgg19",
    rate_schedule=tuple((step / 100, max(0.95**step, 0.01)) for step in range(1, 100)),
    augment="crop-flip",
)


def _cells(network: str, data: str, epochs: Mapping[str, int] = MappingProxyType({})) -> list[Cell]:
    """A network on a dataset, with each of the constraints."""
    changes: dict[str, Any] = {
        **epochs,
        **({} if network == "VGG19" else {"model": network.lower()}),
    }
    tested = {ending: pairs[list(CIFAR).index(data)] for ending, pairs in _TESTED[network].items()}
    return [
        Cell(network + end, f"bn{end.lower()}", data, accuracy, CIFAR[data], changes, also=also)
        for end, (accuracy, loss) in tested.items()
        for also in [{"test_loss": loss}]
    ]


#: Of table 1 on CIFAR-100.
_LONG = {"epochs": 500}

_TAB1 = (
    *_cells("VGG19", "CIFAR-10"),
    *_cells("ResNet18", "CIFAR-10"),
    *_cells("VGG19", "CIFAR-100", _LONG),
    *_cells("ResNet18", "CIFAR-100", _LONG),
)

_ORDERINGS = (
    *(Ordering("VGG19+LCW", row) for row in ("VGG19", "VGG19+WN", "VGG19+CWN")),
    Ordering("VGG19+LCW", "VGG19", measure="test_loss"),
    Ordering("VGG19+LCW", "VGG19", measure="train_loss"),
)


def _item(
    name: str, title: str, cells: tuple[Cell, ...], full: Protocol, column: str, smoke_model: str
) -> Item:
    rows = ("VGG19", "VGG19+LCW", "VGG19+WN", "VGG19+CWN", "ResNet18", "ResNet18+LCW")
    reduced = {"only_rows": rows, "only_columns": (column,), "channels": 8, "epochs": 8}
    return grid_item(
        name,
        title,
        "LCW improves VGG19 in accuracy and loss; on ResNet-18 it makes little difference",
        Grid(cells, _ORDERINGS, beside=("test_loss",)),
        presets(
            full,
            smoke_rows=("VGG19", "VGG19+LCW"),
            smoke_columns=(column,),
            smoke={"model": smoke_model},
            cpu=reduced,
            cpu_cost="20 min of one CPU core (estimated)",
            full_cost="2 GPU hours a run (estimated)",
        ),
    )


TAB1 = _item(
    "lcw/tab1",
    "VGG19 and ResNet-18 with BN and constrained weights",
    _TAB1,
    _FULL.changed(epochs=300, last=_LAST),
    "CIFAR-10",
    "vgg19",
)
FIG6 = _item(
    "lcw/fig6",
    "training curves of VGG19 on CIFAR-100",
    tuple(_cells("VGG19", "CIFAR-100")),
    _FULL.changed(epochs=500),
    "CIFAR-100",
    "cnn4",  # VGG19 is in that of table 1.
)
