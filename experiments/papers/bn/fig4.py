"""Figure 4: batch normalization frozen into the kernels, which are then trained without it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float, PyTree
from matplotlib.figure import Figure

from experiments.analysis.picture import draw_lines, new_figure
from experiments.data.dataset import Dataset
from experiments.methods.paths import by_path
from experiments.methods.table import METHODS
from experiments.papers.data import data_note, load_data
from experiments.papers.grid import Protocol
from experiments.papers.item import Context, Item, Preset, Report
from experiments.papers.measured import at_least, at_most, measured_report
from experiments.papers.states import epochs
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm.nnx import fold_batch_norm, functionalize

#: The seed of the only run.
SEED = 0


@dataclass(frozen=True)
class Settings(Protocol):
    """Settings of a network of four convolutions, trained with BN and then without.

    Attributes:
        fine_epochs: the epochs without BN.
        fine_rate: the constant learning rate without BN.
    """

    model: str = "cnn4"
    channels: int = 64
    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    seeds: int = 1
    fine_epochs: int = 50
    fine_rate: float = 1e-3


def run(settings: Settings, context: Context) -> Report:
    """Trains with BN, folds it, and continues with plain SGD."""
    data = load_data(context.data_dir, "cifar10", 0, settings.train_rows, settings.test_rows)
    normalized = make_trainer(METHODS["bn"], settings, data)
    *_, (state, _) = epochs(normalized, data, SEED)
    context.advance(0.6, "trained with batch normalization")
    fine = {"epochs": settings.fine_epochs, "learning_rate": settings.fine_rate}
    config = settings.changed(rate_schedule=((0.0, 1.0),), **fine)
    plain = make_trainer(METHODS["none"], config, data)
    norms, train, test = _fine_tuned(plain, _folded(normalized, state, data), data)
    growth = norms[-1] / norms[0]
    findings = [
        *(at_least(f"norm of kernel {n} after over before", x, 1) for n, x in enumerate(growth, 1)),
        at_most("training loss after beside before", train[-1], train[0]),
        at_least("test loss after beside before", test[-1], test[0]),
    ]
    notes = (data_note(context.data_dir, ["cifar10"]),)
    return measured_report(findings, {"frozen": _drawn(norms, train, test)}, notes)


def _folded(trainer: Trainer, state: TrainState, data: Dataset) -> PyTree:
    """Returns the parameters of the plain network with the same outputs in evaluation."""
    model = trainer.network(jax.random.key(0))
    nnx.update(model, state.params, state.model_state)
    folded, remaining = fold_batch_norm(model, jnp.asarray(data.X_train[:1]))
    assert not remaining
    return functionalize(folded).params


def _fine_tuned(
    trainer: Trainer, params: PyTree, data: Dataset
) -> tuple[Float[np.ndarray, "epochs kernels"], list[float], list[float]]:
    """Returns kernels' norms, and losses on both splits, before the first epoch and after each."""
    splits = jax.device_put((data[:2], data[2:4]))
    state = trainer.init(np.uint32(SEED), splits[0][0])._replace(params=params)
    norms, losses = [], []
    for current, _ in epochs(trainer, data, SEED, state):
        named = by_path(current.params).items()
        kernels = [leaf for path, leaf in named if path.endswith("/kernel")]
        norms.append([float(jnp.linalg.norm(kernel.ravel())) for kernel in kernels])
        losses.append([float(trainer.evaluate(current, *split).loss) for split in splits])
    train, test = zip(*losses, strict=True)
    return np.array(norms), list(train), list(test)


def _drawn(
    norms: Float[np.ndarray, "epochs kernels"], train: list[float], test: list[float]
) -> Figure:
    figure = new_figure(2)
    left, right = figure.axes
    epoch = np.arange(len(norms))
    grown = (norms / norms[0]).T
    draw_lines(left, {f"kernel {n}": line for n, line in enumerate(grown, 1)}, x=epoch)
    left.set(xlabel="epoch after freezing", ylabel="norm over that at freezing")
    draw_lines(right, {"training": train, "test": test}, x=epoch, first=1)
    right.set(xlabel="epoch after freezing", ylabel="loss in evaluation (nats)")
    return figure


FIG4 = Item(
    "bn/fig4",
    "the norms of kernels after batch normalization is frozen into them",
    "all norms grow; the training loss falls and the validation loss rises",
    run,
    smoke=Preset(
        Settings(channels=4, epochs=1, fine_epochs=1, batch_size=64, train_rows=256, test_rows=64),
        "30 s on 2 CPU cores",
        "two epochs of enlarged digits on a narrow network: it shows that the item runs",
    ),
    cpu=Preset(
        Settings(channels=16, epochs=10, fine_epochs=10, train_rows=2000, test_rows=2000),
        "5 min on 2 CPU cores",
        "2,000 training images, a quarter of the width, 10 epochs and 10",
    ),
    full=Preset(Settings(), "1 GPU hour (estimated)"),
)
