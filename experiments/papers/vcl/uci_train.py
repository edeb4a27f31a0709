"""Every activation and normalization on every data set, and what validation chooses of it."""

import itertools
from collections.abc import Callable
from functools import cache, lru_cache, partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from experiments.config import Config
from experiments.kept import RUNS, read_kept, write_kept
from experiments.methods.flags import adjusted
from experiments.methods.overrides import Overrides
from experiments.methods.table import METHODS
from experiments.papers.fingerprint import with_data
from experiments.papers.item import Context
from experiments.papers.vcl.padded import Padded, Sizes, padded, sizes_of
from experiments.papers.vcl.sweep import make_sweep
from experiments.papers.vcl.uci_data import Load, find_sets, split
from experiments.reading import record_of
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import steps_per_epoch


class Settings(NamedTuple):
    """The protocol; the paper's section 3 unless said otherwise.

    Attributes:
        activations: what is trained.
        normalizations: each with every activation.
        depths: the hidden layers among which validation chooses.
        width: of each.
        epochs: of each run.
        batch_size: N.
        learning_rates: validation chooses here too; the paper has one.
        rate_schedule: (fraction of training, factor on the rate) from then on: 1e-3 from epoch 200
            of 500.
        sample_size: n of the loss.
        vcl_weight: gamma.
        head_dropout: of the last layer, for ReLU and ELU.
        alpha_dropout: of every hidden layer, for SELU.
        window: the epochs over which the validation error is averaged.
        held_out: the fraction of the training rows for validation; ours, the paper gives none.
        rows: the training rows that are used, validation's among them, or 0 for all.
        test_rows: the test rows that are used, or 0 for all.
        seeds: of the split, where the file leaves it open, and of everything random.
        bundled: whether the digits stand in where there is no --data-dir.
    """

    activations: tuple[str, ...] = ("relu", "elu", "selu")
    normalizations: tuple[str, ...] = ("none", "bn", "vcl")
    depths: tuple[int, ...] = (4, 8, 16)
    width: int = 256
    epochs: int = 500
    batch_size: int = 20
    learning_rates: tuple[float, ...] = (0.01,)
    rate_schedule: tuple[tuple[float, float], ...] = ((0.4, 0.1),)
    sample_size: int = 10
    vcl_weight: float = 0.01
    head_dropout: float = 0.5
    alpha_dropout: float = 0.05
    window: int = 10
    held_out: float = 0.15
    rows: int = 0
    test_rows: int = 0
    seeds: int = 4
    bundled: bool = False


class Chosen(NamedTuple):
    """What validation chose for a data set, an activation, a normalization and a seed.

    Attributes:
        dataset: its name.
        activation: a key of `experiments.models.ACTIVATIONS`.
        normalization: none, bn or vcl.
        seed: of everything random.
        depth: of the chosen network.
        learning_rate: its initial one.
        epoch: the last one of the window, counted from 1.
        validation_error: the mean over the window.
        test_error: after that epoch.
    """

    dataset: str
    activation: str
    normalization: str
    seed: int
    depth: int
    learning_rate: float
    epoch: int
    validation_error: float
    test_error: float


class Programs(NamedTuple):
    """What all trainings share.

    Attributes:
        sweep_for: ``(activation, normalization, depth) -> sweep``, compiled once each.
        data_for: ``name -> data``, on the device, one set at a time.
    """

    sweep_for: Callable[[str, str, int], AheadOfTime]
    data_for: Callable[[str], Padded]


def train_all(settings: Settings, context: Context) -> list[Chosen]:
    """All runs; those of an earlier call with the same protocol and data sets are kept."""
    sets = find_sets(context.data_dir, settings.bundled)
    path = context.out / RUNS
    protocol = with_data(settings._asdict(), context.data_dir, sets)
    finished = read_kept(path, protocol, partial(record_of, Chosen))
    kept = {pair: list(seeds) for pair, seeds in itertools.groupby(finished, lambda c: c[:3])}
    pairs = list(itertools.product(sets, settings.activations, settings.normalizations))
    programs = cache(partial(_programs, settings, sets))  # What is finished needs none.
    for done, pair in enumerate(pairs, 1):
        if pair not in kept:
            kept[pair] = _train(settings, programs(), pair)
            every = itertools.chain.from_iterable(kept.values())
            write_kept(path, protocol, [chosen._asdict() for chosen in every])
        context.advance(done / len(pairs), ", ".join(pair))
    return [chosen for pair in pairs for chosen in kept[pair]]


def select(
    validation: Float[np.ndarray, "*runs epochs"], window: int
) -> tuple[tuple[int, ...], float]:
    """Where the mean of ``window`` epochs up to and with one is lowest (the first), and that mean.

    Returns:
        The index of the run and of the window's last epoch, and the mean; a training that is
        shorter than the window is one window.
    """
    window = min(window, validation.shape[-1])
    means = np.lib.stride_tricks.sliding_window_view(validation, window, -1).mean(-1)
    *run, first = np.unravel_index(means.argmin(), means.shape)
    return (*map(int, run), int(first) + window - 1), float(means.min())


def _train(settings: Settings, programs: Programs, pair: tuple[str, str, str]) -> list[Chosen]:
    """The choices of all seeds, of all depths and rates."""
    data = programs.data_for(pair[0])
    seeds = jnp.arange(settings.seeds, dtype=jnp.uint32)
    rates = jnp.array(settings.learning_rates, jnp.float32)
    curves = [programs.sweep_for(*pair[1:], depth)(data, seeds, rates) for depth in settings.depths]
    # (seeds, depths, rates, epochs)
    _, *errors = (np.stack(each, 1) for each in zip(*jax.device_get(curves), strict=True))
    choices = []
    for seed, (validation, test) in enumerate(zip(*errors, strict=True)):
        (depth, rate, epoch), error = select(validation, settings.window)
        network = settings.depths[depth], settings.learning_rates[rate], epoch + 1
        found = error, float(test[depth, rate, epoch])
        choices.append(Chosen(*pair, seed, *network, *found))
    return choices


def _programs(settings: Settings, sets: dict[str, Load]) -> Programs:
    """One program for each network, for arrays that hold each of the data sets."""
    capacity = reduce(Sizes.joined, (_sizes(settings, each) for each in sets.values()))
    config = Config(
        model="mlp",
        width=settings.width,
        weight_decay=0.0,
        rate_schedule=settings.rate_schedule,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
    )
    overrides = Overrides(sample_size=settings.sample_size, vcl_weight=settings.vcl_weight)

    @cache
    def sweep_for(activation: str, normalization: str, depth: int) -> AheadOfTime:
        network = {"activation": activation, "depth": depth, **_dropout(settings, activation)}
        method = adjusted(METHODS[normalization], overrides)
        return make_sweep(method, config.changed(**network), capacity)

    @lru_cache(maxsize=1)
    def data_for(name: str) -> Padded:
        splits = [
            split(sets[name], seed, settings.rows, settings.test_rows)
            for seed in range(settings.seeds)
        ]
        return jax.device_put(padded(splits, settings.held_out, capacity))

    return Programs(sweep_for, data_for)


def _dropout(settings: Settings, activation: str) -> dict[str, float]:
    if activation == "selu":
        return {"alpha_dropout": settings.alpha_dropout}
    return {"head_dropout": settings.head_dropout}


def _sizes(settings: Settings, load_set: Load) -> Sizes:
    sizes = sizes_of(split(load_set, 0, settings.rows, settings.test_rows), settings.held_out)
    steps_per_epoch(sizes.train, settings.batch_size)  # Raises for too few rows.
    return sizes
