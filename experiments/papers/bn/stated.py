"""What Luo et al. 2019 state of their protocols, and where."""

from experiments.papers.stated import ALL_ROWS, MOMENTUM, Stated, says, tenth_at

_SGD = says("Appendix B", {**MOMENTUM, "rate_decay": 1e-4})
_CIFAR = says("5", ALL_ROWS)
_TRAINED = (*says("5", {"model": "resnet18"}), *_SGD, *_CIFAR)
_CNN = says("Appendix B", {"model": "cnn4", "channels": 64})
#: The initial rates are in proportion to batches; the rate of none is given.
_BATCHES = (
    Stated("batch_size", 1024, "5, Figure 2", "1024"),
    Stated("batch_size", 128, "5, Figure 2", "BN, M = 128"),
)

STATED = {
    "bn/fig1a": says("4.1", {"inputs": 4096, "batch_size": 32}),
    "bn/fig1b": (
        *says("4.1 (the caption of Figure 1 says M = 32)", {"batch_size": 16}),
        *says("4.1", {"inputs": 4096}),
    ),
    "bn/fig2ab": (*_BATCHES, *says("5", {"population_rows": 10_000}, "PN"), *_TRAINED),
    "bn/fig2cd": (*_CNN, *_SGD, *_CIFAR),
    "bn/fig2ef": (*_SGD, *_CIFAR),
    "bn/fig2gh": (
        *_BATCHES,
        *says("5, B.3", {"dropout": 0.1}, "^BN"),
        *says("5, B.3", {"dropout": 0.2}, "^WN"),
        *_TRAINED,
    ),
    "bn/fig3": (
        *_BATCHES,
        *says("B.1", {"model": "resnet18", **MOMENTUM, **tenth_at(30, 60, 90), **ALL_ROWS}),
        *says("B.1", {"learning_rate": 0.1}, "M = 128|PN"),
    ),
    "bn/fig4": (*says("5, B.2", {"fine_rate": 1e-3}), *_CIFAR),
}
