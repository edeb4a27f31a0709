"""A look at a training within its first hundred updates: whether its rate kills the network."""

from collections.abc import Callable

import jax
from jaxtyping import Array

from experiments.data.dataset import Dataset
from experiments.training.epoch import Look
from experiments.training.look import view_of
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer
from jaxnorm import propagation, rate_findings, read


def early_look(trainer: Trainer, dataset: Dataset, say: Callable[[str], object]) -> Look:
    """Makes a function that looks at the first state that it gets, and compares later ones with it.

    ``say`` is called once, with a line, if the network has left its start. A network that cannot be
    measured, with kernels in a loop, for example, is not looked at; nor is one whose parameters
    several processes hold.
    """
    signals: list[dict[str, Array]] = []

    def look(state: TrainState) -> None:
        if (signal := _signal(trainer, state, dataset)) is None:
            return
        signals.append(signal)
        if findings := rate_findings(signals[-1], signals[0]):
            name, rate = trainer.method.name, trainer.config.learning_rate
            found = findings[0]._replace(remedies=())
            say(
                f"The learning rate, {rate:g}, is too high for {name}: {found}. Try a third, "
                f"--learning-rate {rate / 3:.2g}."
            )

    return look


def _signal(trainer: Trainer, state: TrainState, dataset: Dataset) -> dict[str, Array] | None:
    if jax.process_count() > 1:
        return None
    view = view_of(trainer, state, dataset)
    try:
        return propagation(
            read(view.apply, view.weights, view.X), loss=view.loss, layout=trainer.context.kernels
        )
    except ValueError:
        return None
