"""Figure 4: batch normalization frozen into the kernels, which are then trained without it."""

from dataclasses import dataclass
from typing import NamedTuple

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
from experiments.papers.data import described, load_data
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


class History(NamedTuple):
    """Records after freezing, before the first epoch and after each."""

    norms: Float[np.ndarray, "epochs layers"]
    train_loss: list[float]
    test_loss: list[float]


def run(settings: Settings, context: Context) -> Report:
    """Trains with BN, folds it, and continues with plain SGD."""
    data = load_data(context.data_dir, "cifar10", 0, settings.rows, settings.test_rows)
    normalized = make_trainer(METHODS["bn"], settings, data)
    *_, (state, _) = epochs(normalized, data, SEED)
    context.advance(0.6, "trained with batch normalization")
    folded = _folded(normalized, state, data)
    fine = {"epochs": settings.fine_epochs, "learning_rate": settings.fine_rate}
    plain = make_trainer(
        METHODS["none"], settings.changed(rate_schedule=((0.0, 1.0),), **fine), data
    )
    history = _fine_tuned(plain, folded, data)
    context.advance(1.0, "went on without")
    growth = history.norms[-1] / history.norms[0]
    measured = [
        *(
            at_least(f"norm of kernel {i + 1} after over before", ratio, 1.0)
            for i, ratio in enumerate(growth)
        ),
        at_most("training loss after beside before", history.train_loss[-1], history.train_loss[0]),
        at_least("test loss after beside before", history.test_loss[-1], history.test_loss[0]),
    ]
    notes = (f"Trained and tested on: {described(context.data_dir, ['cifar10'])}.",)
    return measured_report(measured, {"frozen": _drawn(history)}, notes)


def _folded(trainer: Trainer, state: TrainState, data: Dataset) -> PyTree:
    """Returns the parameters of the plain network with the same outputs in evaluation."""
    model = trainer.network(jax.random.key(0))
    variables = nnx.state(model)
    nnx.replace_by_pure_dict(variables, _merged(state.params, state.model_state))
    nnx.update(model, variables)
    folded, remaining = fold_batch_norm(model, jnp.asarray(data.X_train[:1]))
    assert not remaining
    return functionalize(folded).params


def _merged(one: PyTree, other: PyTree) -> PyTree:
    """Merges two trees of dicts."""
    if not isinstance(one, dict):
        return one
    both = {**one, **other}
    return {k: _merged(one[k], other[k]) if k in one and k in other else both[k] for k in both}


def _fine_tuned(trainer: Trainer, params: PyTree, data: Dataset) -> History:
    train, test = jax.device_put((data[:2], data[2:4]))
    state = trainer.init(np.uint32(SEED), train[0])
    norms, train_loss, test_loss = [], [], []
    for current, _ in epochs(trainer, data, SEED, state._replace(params=params)):
        named = by_path(current.params).items()
        kernels = [leaf for path, leaf in named if path.endswith("/kernel")]
        norms.append([float(jnp.linalg.norm(kernel.ravel())) for kernel in kernels])
        train_loss.append(float(trainer.evaluate(current, *train).loss))
        test_loss.append(float(trainer.evaluate(current, *test).loss))
    return History(np.array(norms), train_loss, test_loss)


def _drawn(history: History) -> Figure:
    figure = new_figure(2)
    left, right = figure.axes
    epoch = np.arange(len(history.norms))
    grown = (history.norms / history.norms[0]).T
    draw_lines(left, {f"kernel {n}": line for n, line in enumerate(grown, 1)}, x=epoch)
    left.set(xlabel="epoch after freezing", ylabel="norm over that at freezing")
    losses = {"training": history.train_loss, "test": history.test_loss}
    draw_lines(right, losses, x=epoch, first=1)
    right.set(xlabel="epoch after freezing", ylabel="loss in evaluation (nats)")
    return figure


FIG4 = Item(
    "bn/fig4",
    "the norms of kernels after batch normalization is frozen into them",
    "all norms grow; the training loss falls and the validation loss rises",
    run,
    {
        "smoke": Preset(
            Settings(channels=4, epochs=1, fine_epochs=1, batch_size=64, rows=256, test_rows=64),
            "30 s on 2 CPU cores",
            "two epochs of enlarged digits on a narrow network: it shows that the item runs",
        ),
        "cpu": Preset(
            Settings(channels=16, epochs=10, fine_epochs=10, rows=2000, test_rows=2000),
            "5 min on 2 CPU cores",
            "2,000 training images, a quarter of the width, 10 epochs and 10",
        ),
        "full": Preset(Settings(), "1 GPU hour (estimated)"),
    },
)
