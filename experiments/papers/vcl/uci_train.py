"""Training of every combination on every data set; validation chooses the depth and the epoch."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import polars as pl
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset
from experiments.methods.table import METHODS
from experiments.papers.data import data_of
from experiments.papers.grid import Protocol
from experiments.papers.item import Context
from experiments.papers.states import epochs
from experiments.papers.training import runs_of
from experiments.papers.vcl.uci_data import find_sets, split
from experiments.runs.spec import Spec
from experiments.training.fit import Run
from experiments.training.history import Checkpointer, Epoch
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm import parameter_count

#: Rows and their labels.
Rows = tuple[Float[np.ndarray, "rows features"], Int[np.ndarray, " rows"]]


@dataclass(frozen=True)
class Uci(Protocol):
    """Protocol of the paper's section 3 on small data sets.

    Attributes:
        sample_size: n of the variance constancy loss.
        vcl_weight: gamma, the factor of the loss.
        bundled: if True, the digits replace a missing --data-dir.
    """

    model: str = "mlp"
    epochs: int = 500
    batch_size: int = 20
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    rate_schedule: tuple[tuple[float, float], ...] = ((0.4, 0.1),)
    head_dropout: float = 0.5
    sample_size: int = 10
    vcl_weight: float = 0.01
    bundled: bool = False


@dataclass(frozen=True)
class Settings(Uci):
    """Settings of all combinations on all sets, whose network validation chooses.

    Attributes:
        activations: the activations: ReLU and ELU with dropout in the last layer, SELU with alpha
            dropout in every hidden layer.
        normalizations: the normalizations, each with every activation.
        depths: the numbers of hidden layers that validation chooses from.
        window: the epochs over which the validation error is averaged.
        validation: the fraction of the training rows for validation; our choice, the paper gives
            none.
    """

    activation: str = ""
    depth: int = 0
    alpha_dropout: float = 0.05
    seeds: int = 4
    activations: tuple[str, ...] = ("relu", "elu", "selu")
    normalizations: tuple[str, ...] = ("none", "bn", "vcl")
    depths: tuple[int, ...] = (4, 8, 16)
    window: int = 10
    validation: float = 0.15

    def for_network(self, activation: str, depth: int) -> "Settings":
        """Returns the settings of one network, with the dropout of its activation alone."""
        unused = "head_dropout" if activation == "selu" else "alpha_dropout"
        return self.changed(activation=activation, depth=depth, **{unused: 0.0})


def train_all(settings: Settings, context: Context) -> pl.DataFrame:
    """Returns one row per data set, combination and seed, with the choice of validation.

    Runs in the store are not trained again. ``epoch`` is the last one of the window, counted from
    1, and the test error is the one after it; the validation error is the mean over the window.
    """
    sets = find_sets(context.data_dir, settings.bundled)
    data = data_of(context.data_dir, sets)
    shared = settings.changed(activations=(), normalizations=())  # Specs name one of each.
    specs = [
        Spec(normalization, seed, shared, (("activation", activation),), (name, data[name]))
        for name in sets
        for activation in settings.activations
        for normalization in settings.normalizations
        for seed in range(settings.seeds)
    ]
    names = {spec: f"{spec.data[0]}, {spec}" for spec in specs}
    runs = runs_of(names, partial(Networks, shared, context.data_dir), context)
    return pl.DataFrame([_chosen(spec, runs[spec]) for spec in specs])


def _chosen(spec: Spec, run: Run) -> dict[str, object]:
    return {
        "dataset": spec.data[0],
        **dict(spec.changes),
        "normalization": spec.method,
        "seed": spec.seed,
        "depth": int(run.scores["depth"]),
        "epoch": run.curve[-1].epoch,
        **{name: run.scores[name] for name in ("validation_error", "test_error")},
    }


def select(
    validation: Float[np.ndarray, "*runs epochs"], window: int
) -> tuple[tuple[int, ...], float]:
    """Finds the window of epochs with the lowest mean, the first of equals.

    Returns:
        The index of the run and of the window's last epoch, and the mean over the window, which is
        the whole training if that is shorter.
    """
    window = min(window, validation.shape[-1])
    means = np.lib.stride_tricks.sliding_window_view(validation, window, -1).mean(-1)
    *run, first = np.unravel_index(means.argmin(), means.shape)
    return (*map(int, run), int(first) + window - 1), float(means.min())


class Networks:
    """A function from specs to runs: trains a network of each depth, and validation chooses one.

    Args:
        settings: the settings of the networks.
        data_dir: the folder of the data sets, or None.
    """

    def __init__(self, settings: Settings, data_dir: Path | None):
        self._settings, self._sets = settings, find_sets(data_dir, settings.bundled)
        # Specs come one combination after the other, whose seeds share compiled functions.
        self._trainers: tuple[tuple[object, ...], list[Trainer]] = ((), [])

    def __call__(self, spec: Spec, keeper: Checkpointer) -> Run:
        """Returns the run that validation chooses, up to the end of its window."""
        settings = self._settings
        split_set = split(self._sets[spec.data[0]], spec.seed, settings.rows, settings.test_rows)
        data, validation = held_out(split_set, settings.validation)
        trainers = self._trainers_of(spec, data)
        # (depths, epochs)
        curves = [train(trainer, data, validation, spec.seed) for trainer in trainers]
        errors = np.stack([curve.validation_error for curve in curves])
        (index, last), error = select(errors, settings.window)
        curve = Curve(*(values[: last + 1] for values in curves[index]))
        count = parameter_count(trainers[index].context.functional.params)
        scores = {"depth": float(settings.depths[index]), "validation_error": error}
        scores |= {"test_error": float(curve.test_error[-1])}
        of_epochs = as_epochs(curve)
        run = Run(spec.method, spec.seed, of_epochs, math.nan, count, None, scores=scores)
        return run._replace(changes=spec.changes)

    def _trainers_of(self, spec: Spec, data: Dataset) -> list[Trainer]:
        """Returns the trainers of a combination, one per depth, on data of that shape."""
        key = (spec.data[0], spec.changes, spec.method, data.X_train.shape)
        if self._trainers[0] != key:
            activation, method = dict(spec.changes)["activation"], METHODS[spec.method]
            configs = [self._settings.for_network(activation, n) for n in self._settings.depths]
            adjusted = method.adjusted(self._settings)
            self._trainers = key, [make_trainer(adjusted, each, data) for each in configs]
        return self._trainers[1]


class Curve(NamedTuple):
    """Measures after each epoch, errors as fractions.

    Attributes:
        train_loss: the mean over the epoch's steps, each before its update.
        validation_error: the error after the epoch, in evaluation mode.
        test_error: the error after the epoch, in evaluation mode.
    """

    train_loss: Float[np.ndarray, " epochs"]
    validation_error: Float[np.ndarray, " epochs"]
    test_error: Float[np.ndarray, " epochs"]


def held_out(data: Dataset, fraction: float) -> tuple[Dataset, Rows]:
    """Takes the last training rows away for validation; returns the rest, and them."""
    count = len(data.y_train) - max(1, round(fraction * len(data.y_train)))
    train = data._replace(X_train=data.X_train[:count], y_train=data.y_train[:count])
    return train, (data.X_train[count:], data.y_train[count:])


def train(trainer: Trainer, data: Dataset, validation: Rows, seed: int) -> Curve:
    """Trains a network and measures it after each epoch."""
    parts = jax.device_put((validation, data[2:4]))
    measured = [
        (metrics.loss, *(1 - trainer.evaluate(state, *part).accuracy for part in parts))
        for state, metrics in epochs(trainer, data, seed)
        if metrics is not None
    ]
    return Curve(*np.array(jax.device_get(measured)).T)


def as_epochs(curve: Curve) -> list[Epoch]:
    """Converts a curve to epochs; measures that it does not have are NaN."""
    pairs = zip(curve.train_loss, curve.test_error, strict=True)
    return [
        Epoch(number, float(loss), math.nan, math.nan, 1 - float(error))
        for number, (loss, error) in enumerate(pairs, 1)
    ]
