"""A method on a network and a dataset's shape, as three compiled functions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Key, PyTree, UInt

from experiments.data import Augment, Dataset, find_augmentation
from experiments.methods import (
    OptimizerSettings,
    Recipe,
    constrained_layout,
    initial_parameters,
    make_optimizer,
    scales_and_biases,
    stddev_of_kernels,
)
from experiments.models import ACTIVATIONS, ModelSettings, Noise, build
from experiments.training._ahead import Ahead
from experiments.training._cut import cut
from experiments.training._epoch import make_epoch, make_indexed_step, steps_per_epoch
from experiments.training._evaluate import make_evaluate
from experiments.training._guard import NonFinite, guarded
from experiments.training._keys import run_keys
from experiments.training._placement import ONE_DEVICE, Placement
from experiments.training._refresh import Refresh, make_refresh
from experiments.training._scanned import Scanned
from experiments.training._shard_map import placed
from experiments.training._size import abstract_network
from experiments.training._state import TrainState
from experiments.training._step import Step, make_step
from experiments.training._stepwise import Stepwise, loops_are_slow
from experiments.training._streamed import Streamed, StreamedEvaluation
from jaxnorm import Layout, power_iteration
from jaxnorm.nnx import functionalize


class TrainingSettings(NamedTuple):
    """What all methods of a comparison share.

    Attributes:
        model: which network.
        optimizer: which optimizer.
        epochs: the number of passes over the training rows.
        batch_size: the rows of one step.
        augment: a key of `AUGMENTATIONS`.
        constrain_head: whether the methods' constraints include the classifier.
        placement: the devices.
        accumulate: the microbatches of a step.
        dtype: of weights and activations in the network.
        nonfinite: what is done about a step that would make something not finite.
    """

    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    epochs: int = 1
    batch_size: int = 64
    augment: str = "none"
    constrain_head: bool = False
    placement: Placement = ONE_DEVICE
    accumulate: int = 1
    dtype: str = "float32"
    nonfinite: NonFinite = "record"


class Trainer(NamedTuple):
    """The functions that train one method; they serve every seed, compiled once.

    Attributes:
        recipe: the method.
        settings: what it shares with the others.
        layout: which kernels it constrains.
        network: ``key -> module``, with random parameters, or under `nnx.eval_shape` without.
        init: ``(seed (uint32), X) -> TrainState``.
        step: ``(state, batch) -> (state, metrics)``, pure and not compiled.
        refresh: what is done between steps, or None.
        epoch: ``(state, X, y) -> (state, metrics)``; it consumes the state, and calls ``meanwhile``
            when the device has work.
        careful_epoch: the same, up to the first step that is not finite.
        evaluate: ``(state, X, y) -> metrics``.
        apply: the network, as `jaxnorm.nnx.functionalize` gives it.
        stddev: the noise of its hidden kernels, a draw a sample; None for none.
    """

    recipe: Recipe
    settings: TrainingSettings
    layout: Layout
    network: Callable[[Key[Array, ""]], nnx.Module]
    init: Ahead
    step: Step
    refresh: Refresh | None
    epoch: Scanned | Stepwise | Streamed
    careful_epoch: Scanned | Stepwise | Streamed
    evaluate: Ahead | StreamedEvaluation
    apply: Callable[..., tuple[Array, PyTree]]
    stddev: PyTree


def make_trainer(recipe: Recipe, settings: TrainingSettings, dataset: Dataset) -> Trainer:
    """The trainer of a method for datasets of the same shapes as ``dataset``."""
    shape = dataset.X_train.shape[1:]
    settings = settings._replace(model=settings.model.on(shape))
    recipe = recipe.placed_in(settings.model.name)
    augment = find_augmentation(settings.augment, dataset.name, shape)
    layout, placement = constrained_layout(settings.constrain_head), settings.placement
    steps = settings.epochs * steps_per_epoch(dataset.train_rows, settings.batch_size)
    groups = cut(recipe, placement, settings.batch_size, settings.accumulate, settings.model.groups)
    sizes = settings.model._replace(groups=groups.batch_norm)
    network = partial(network_of, recipe, sizes, shape, dataset.num_classes)

    model = abstract_network(network, placement)
    functional = functionalize(model, mixed_precision=True)
    apply, stddev = functional.apply, stddev_of_kernels(recipe, functional, shape)

    def optimizer(seed: int | UInt[Array, ""] = 0) -> optax.GradientTransformation:
        return make_optimizer(recipe, settings.optimizer, steps, layout, seed)

    step = _step(apply, optimizer(), recipe, stddev, settings, groups.variance_constancy)
    refresh = make_refresh(model, recipe, settings.batch_size, placement)

    def epoch_of(step: Step) -> Scanned | Stepwise | Streamed:
        return _epoch_runner(model, step, refresh, settings, augment, dataset)

    evaluate = make_evaluate(apply, recipe.noisy_parameters, placement=placement)
    return Trainer(
        recipe,
        settings,
        layout,
        network,
        init=Ahead(make_init(network, optimizer, recipe, settings, layout)),
        step=step,
        refresh=refresh,
        epoch=epoch_of(step),
        careful_epoch=epoch_of(guarded(step, goes_on=False)),
        evaluate=(
            StreamedEvaluation(evaluate, dataset, placement) if dataset.stream else Ahead(evaluate)
        ),
        apply=apply,
        stddev=stddev,
    )


def _step(
    apply: Callable[..., tuple[Array, PyTree]],
    optimizer: optax.GradientTransformation,
    recipe: Recipe,
    stddev: PyTree,
    settings: TrainingSettings,
    groups: int,
) -> Step:
    """The step on the run's devices."""
    step = make_step(
        apply,
        optimizer,
        recipe.variance_constancy,
        stddev,
        groups=groups,
        axis_name=settings.placement.axis_name,
        accumulate=settings.accumulate,
        dtype=settings.dtype,
    )
    step = placed(step, settings.placement)
    # Guarded outside: there all devices have the same metrics.
    return guarded(step) if settings.nonfinite == "skip" else step


def network_of(
    recipe: Recipe,
    model: ModelSettings,
    shape: Sequence[int],
    num_classes: int,
    key: Key[Array, ""],
) -> nnx.Module:
    """The network of a method, with random parameters."""
    noise = Noise(recipe.noise or 0.0, recipe.noise_grows)
    return build(
        model,
        shape,
        num_classes,
        nnx.Rngs(key),
        norm=recipe.norm,
        activation=recipe.activation,
        post_norm=recipe.post_norm,
        standardize=recipe.propagates,
        dropout=recipe.dropout,
        input_norm=recipe.input_norm,
        scale_layers=noise if recipe.scale_layers else None,
    )


def make_init(
    network: Callable[[Array], nnx.Module],
    optimizer: Callable[[UInt[Array, ""]], optax.GradientTransformation],
    recipe: Recipe,
    settings: TrainingSettings,
    layout: Layout,
) -> Callable[[Array, Array], TrainState]:
    """The initial state of a run as a function ``(seed, X)``."""
    activation = ACTIVATIONS[recipe.activation or settings.model.activation]

    def init(seed: UInt[Array, ""], X: Float[Array, "rows *shape"]) -> TrainState:
        init_key, _, noise_key, _ = run_keys(seed)
        functional = functionalize(network(init_key))

        def logits(params: PyTree, X: Array) -> Array:
            return functional.apply(params, functional.state, X, train=True)[0]

        params = initial_parameters(functional.params, recipe, layout, logits, X, activation)
        noise_seed = jax.random.bits(noise_key, (), jnp.uint32)
        optimizer_state = optimizer(noise_seed).init(params)
        scales = scales_and_biases(params)[0] if recipe.gamma_decay is not None else {}
        state = TrainState(
            params,
            functional.state,
            optimizer_state,
            power_iteration(params),
            jax.tree.map(jnp.zeros_like, scales),
            seed,
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
        )
        return settings.placement.keep(state)

    return init


def _epoch_runner(
    model: nnx.Module,
    step: Step,
    refresh: Refresh | None,
    settings: TrainingSettings,
    augment: Augment,
    dataset: Dataset,
) -> Scanned | Stepwise | Streamed:
    if dataset.stream:
        return Streamed(step, dataset, settings.batch_size, augment, refresh, settings.placement)
    indexed_step = make_indexed_step(step, augment)
    if loops_are_slow(model):
        return Stepwise(indexed_step, settings.batch_size, refresh)
    return Scanned(make_epoch(indexed_step, settings.batch_size, refresh, settings.placement))
