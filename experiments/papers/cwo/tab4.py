"""Table 4 and Figure 2: constant noise of several sizes."""

from experiments.papers.cwo.protocols import CNN, SMOKE, WIDE_RESNET
from experiments.papers.grid import CIFAR, Cell, Grid, Ordering
from experiments.papers.grid_report import grid_item
from experiments.papers.item import Item
from experiments.papers.presets import presets

#: sigma, the error on CIFAR-10 and on CIFAR-100 (which the paper does not have for 0.4).
_CONSTANT = (
    (0.0, 4.45, 20.61),
    (0.1, 4.78, 21.00),
    (0.2, 4.55, 20.13),
    (0.3, 4.59, 19.81),
    (0.4, 4.25, None),
)
#: The noise grows in proportion to the depth of the layer, up to sigma.
_LINEAR = (
    (0.2, 4.49, 20.78),
    (0.4, 4.49, 19.86),
    (0.6, 4.45, 18.74),
    (0.8, 4.45, 18.25),
    (1.0, 4.19, 18.31),
)

_CELLS = tuple(
    Cell(f"{kind}, sigma = {sigma:g}", method, data, error, CIFAR[data], overrides={"noise": sigma})
    for kind, method, rows in (("constant", "cwo", _CONSTANT), ("linear", "cwo-linear", _LINEAR))
    for sigma, *errors in rows
    for data, error in zip(CIFAR, errors, strict=True)
)


def _item(name: str, title: str, column: str) -> Item:
    return grid_item(
        name,
        title,
        "noise of the proper size improves: linear noise of 1 most, constant noise of 0.4 next",
        Grid(
            _CELLS,
            (
                Ordering("constant, sigma = 0.4", "constant, sigma = 0"),
                Ordering("linear, sigma = 1", "constant, sigma = 0"),
            ),
            as_error=True,
        ),
        presets(
            # How much noise, and whether it grows, is what the rows are about.
            CNN.changed(**WIDE_RESNET | {"growing_noise": 0.0}, only_columns=(column,)),
            smoke_rows=("constant, sigma = 0.4", "linear, sigma = 0.4"),
            smoke_columns=(column,),
            smoke=SMOKE,
            cpu={"model": "resnet18", "learning_rate": 0.05, "epochs": 5},
            cpu_cost="1 h on 2 CPU cores (estimated)",
            full_cost="10 GPU hours a run (estimated)",
        ),
    )


TAB4 = _item("cwo/tab4", "errors with noise of several sizes", "CIFAR-10")
FIG2 = _item("cwo/fig2", "learning curves with noise of several sizes, CIFAR-100", "CIFAR-100")
