"""Training of every activation and normalization on every data set, and selection by validation."""

import math
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Float

from experiments.config import HERE, Config
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.table import METHODS
from experiments.papers.data import data_of
from experiments.papers.full import parameters_of
from experiments.papers.grid import Protocol
from experiments.papers.item import Context
from experiments.papers.training import runs_of
from experiments.papers.vcl.padded import Padded, Sizes, padded, sizes_of
from experiments.papers.vcl.sweep import Curve, make_sweep
from experiments.papers.vcl.uci_data import find_sets, split
from experiments.runs.spec import Spec
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import steps_per_epoch
from experiments.training.fit import Run
from experiments.training.history import Checkpointer, Epoch


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
    # One process, because a sweep trains all seeds at once.
    sweeps = partial(Sweeps, shared, context.data_dir)
    runs = runs_of(names, sweeps, context._replace(workers=HERE))
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


class Sweeps:
    """A function from specs to runs; it trains all seeds and depths of a combination at once.

    Args:
        settings: the settings of the sweeps.
        data_dir: the folder of the data sets, or None.
    """

    def __init__(self, settings: Settings, data_dir: Path | None):
        self._settings, self._sets = settings, find_sets(data_dir, settings.bundled)
        self._sweep = cache(self._make_sweep)
        self._data = lru_cache(maxsize=1)(self._load)
        self._runs = lru_cache(maxsize=1)(self._train)

    def __call__(self, spec: Spec, keeper: Checkpointer) -> Run:
        """Returns the run that validation chooses, up to the end of its window."""
        run = self._runs(spec.data[0], dict(spec.changes)["activation"], spec.method)[spec.seed]
        return run._replace(changes=spec.changes)

    def _train(self, name: str, activation: str, normalization: str) -> list[Run]:
        """Trains all seeds, and returns their runs."""
        settings, data = self._settings, self._data(name)
        seeds = jnp.arange(settings.seeds, dtype=jnp.uint32)
        sweeps = [self._sweep(activation, normalization, depth) for depth in settings.depths]
        curves = jax.device_get([sweep(data, seeds) for sweep in sweeps])
        shape = (int(data.sizes.features),), int(data.sizes.classes)
        runs = []
        for seed in range(settings.seeds):
            # (depths, epochs)
            by_depth = Curve(
                *(np.stack([each[seed] for each in c]) for c in zip(*curves, strict=True))
            )
            (index, last), error = select(by_depth.validation_error, settings.window)
            curve, depth = Curve(*(c[index, : last + 1] for c in by_depth)), settings.depths[index]
            config = settings.for_network(activation, depth)
            count = parameters_of(self._method(normalization), config, *shape)
            errors = {"validation_error": error, "test_error": float(curve.test_error[-1])}
            scores = {"depth": float(depth), **errors}
            runs.append(
                Run(normalization, seed, _epochs(curve), math.nan, count, None, scores=scores)
            )
        return runs

    def _method(self, name: str) -> Method:
        sample_size, weight = self._settings.sample_size, self._settings.vcl_weight
        return METHODS[name].adjusted(Config(sample_size=sample_size, vcl_weight=weight))

    def _make_sweep(self, activation: str, normalization: str, depth: int) -> AheadOfTime:
        """Makes the program of a network, for arrays that hold each of the data sets."""
        config = self._settings.for_network(activation, depth)
        return make_sweep(self._method(normalization), config, self._capacity)

    @cached_property
    def _capacity(self) -> Sizes:
        sizes = [sizes_of(self._split(name, 0), self._settings.validation) for name in self._sets]
        for each in sizes:
            steps_per_epoch(each.train, self._settings.batch_size)  # Raises for too few rows.
        return Sizes(*np.max(sizes, 0).tolist())

    def _split(self, name: str, seed: int) -> Dataset:
        return split(self._sets[name], seed, self._settings.rows, self._settings.test_rows)

    def _load(self, name: str) -> Padded:
        splits = [self._split(name, seed) for seed in range(self._settings.seeds)]
        return jax.device_put(padded(splits, self._settings.validation, self._capacity))


def _epochs(curve: Curve) -> list[Epoch]:
    """Converts a curve to epochs; measures that a sweep does not have are NaN."""
    pairs = zip(curve.train_loss, curve.test_error, strict=True)
    return [
        Epoch(number, float(loss), math.nan, math.nan, 1 - float(error))
        for number, (loss, error) in enumerate(pairs, 1)
    ]
