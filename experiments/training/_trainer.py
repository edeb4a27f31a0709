"""A method on a network and a dataset's shape, as three compiled functions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Key, UInt

from experiments._errors import UserError
from experiments.data import Dataset
from experiments.methods import (
    OptimizerSettings,
    Recipe,
    constrained_layout,
    initial_parameters,
    make_optimizer,
)
from experiments.models import ModelSettings, build
from experiments.training._ahead import Ahead
from experiments.training._epoch import make_epoch, run_keys, steps_per_epoch
from experiments.training._evaluate import make_evaluate
from experiments.training._state import TrainState
from experiments.training._step import Step, make_step
from jaxnorm import Layout
from jaxnorm.nnx import Functional, functionalize


class TrainingSettings(NamedTuple):
    """What all methods of a comparison share.

    Attributes:
        model: which network.
        optimizer: which optimizer.
        epochs: the number of passes over the training rows.
        batch_size: the rows of one step.
        augment: whether images are padded, cropped and mirrored.
        constrain_head: whether the methods' constraints include the classifier.
    """

    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    epochs: int = 1
    batch_size: int = 64
    augment: bool = False
    constrain_head: bool = False


class Trainer(NamedTuple):
    """The functions that train one method; they serve every seed, compiled once.

    Attributes:
        recipe: the method.
        settings: what it shares with the others.
        layout: which kernels it constrains.
        init: ``seed (uint32) -> TrainState``.
        step: ``(state, (X, y)) -> (state, metrics)``, pure and not compiled.
        epoch: ``(state, X, y) -> (state, metrics)``; it consumes the state.
        evaluate: ``(state, X, y) -> metrics``.
    """

    recipe: Recipe
    settings: TrainingSettings
    layout: Layout
    init: Ahead
    step: Step
    epoch: Ahead
    evaluate: Ahead


def make_trainer(recipe: Recipe, settings: TrainingSettings, dataset: Dataset) -> Trainer:
    """The trainer of a method for datasets of the same shapes as ``dataset``."""
    rows, *shape = dataset.X_train.shape
    if settings.augment and len(shape) != 3:
        raise UserError(
            f"{dataset.name} has rows of shape {tuple(shape)} and only images can be augmented; "
            "leave out --augment."
        )
    layout = constrained_layout(settings.constrain_head)
    steps = settings.epochs * steps_per_epoch(rows, settings.batch_size)

    def network(key: Key[Array, ""]) -> nnx.Module:
        norm, activation = recipe.norm, recipe.activation
        rngs = nnx.Rngs(key)
        return build(settings.model, shape, dataset.num_classes, norm, activation, rngs)

    def init(seed: UInt[Array, ""]) -> TrainState:
        init_key, _, noise_key = run_keys(seed)
        functional = functionalize(network(init_key))
        params = initial_parameters(functional.params, recipe, layout)
        noise_seed = jax.random.bits(noise_key, (), jnp.uint32)
        optimizer = make_optimizer(recipe, settings.optimizer, steps, layout, noise_seed)
        epoch = jnp.zeros((), jnp.int32)
        return TrainState(params, functional.state, optimizer.init(params), seed, epoch)

    apply = _abstract(network).apply
    step = make_step(apply, make_optimizer(recipe, settings.optimizer, steps, layout))
    return Trainer(
        recipe,
        settings,
        layout,
        init=Ahead(init),
        step=step,
        # The old state's memory becomes the new one's.
        epoch=Ahead(make_epoch(step, settings.batch_size, settings.augment), donate_argnums=0),
        evaluate=Ahead(make_evaluate(apply, recipe.noise is not None)),
    )


def _abstract(network) -> Functional:
    """The network taken apart without computing its parameters."""
    return functionalize(nnx.eval_shape(lambda: network(jax.random.key(0))))
