"""A method on a network and a dataset's shape, as three compiled functions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Key, PyTree, UInt

from experiments._errors import UserError
from experiments.data import Dataset
from experiments.methods import (
    OptimizerSettings,
    Recipe,
    constrained_layout,
    growing_noise,
    initial_parameters,
    make_optimizer,
    scales_and_biases,
)
from experiments.models import ACTIVATIONS, ModelSettings, build
from experiments.training._ahead import Ahead
from experiments.training._epoch import make_epoch, make_indexed_step, steps_per_epoch
from experiments.training._evaluate import make_evaluate
from experiments.training._keys import run_keys
from experiments.training._refresh import Refresh, make_refresh
from experiments.training._state import TrainState
from experiments.training._step import Step, make_step
from experiments.training._stepwise import Stepwise, loops_are_slow
from jaxnorm import Layout, power_iteration
from jaxnorm.nnx import functionalize


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
        init: ``(seed (uint32), X) -> TrainState``.
        step: ``(state, (X, y)) -> (state, metrics)``, pure and not compiled.
        refresh: what is done between steps, or None.
        epoch: ``(state, X, y) -> (state, metrics)``; it consumes the state.
        evaluate: ``(state, X, y) -> metrics``.
    """

    recipe: Recipe
    settings: TrainingSettings
    layout: Layout
    init: Ahead
    step: Step
    refresh: Refresh | None
    epoch: Ahead | Stepwise
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
    network = partial(network_of, recipe, settings.model, shape, dataset.num_classes)

    # Abstract: the structure alone, without computing parameters.
    model = nnx.eval_shape(lambda: network(jax.random.key(0)))
    apply = functionalize(model).apply
    noise = _noise(recipe, model, (2, *shape))

    def optimizer(seed: int | UInt[Array, ""] = 0) -> optax.GradientTransformation:
        return make_optimizer(recipe, settings.optimizer, steps, layout, seed, noise)

    step = make_step(apply, optimizer(), recipe.variance_constancy)
    refresh = make_refresh(model, recipe, settings.batch_size)
    return Trainer(
        recipe,
        settings,
        layout,
        init=Ahead(make_init(network, optimizer, recipe, settings.model, layout)),
        step=step,
        refresh=refresh,
        epoch=_epoch_runner(model, step, refresh, settings),
        evaluate=Ahead(make_evaluate(apply, recipe.noise is not None)),
    )


def _noise(recipe: Recipe, model: nnx.Module, shape: Sequence[int]) -> PyTree:
    """The noise of each kernel, where it depends on the layer."""
    if recipe.noise is None or not recipe.noise_grows:
        return None
    functional = functionalize(model)

    def logits(params: PyTree, x: Array) -> Array:
        return functional.apply(params, functional.state, x, train=False)[0]

    x = jax.ShapeDtypeStruct(tuple(shape), jnp.float32)
    return growing_noise(recipe.noise, logits, functional.params, x)


def network_of(
    recipe: Recipe,
    model: ModelSettings,
    shape: Sequence[int],
    num_classes: int,
    key: Key[Array, ""],
) -> nnx.Module:
    """The network of a method, with random parameters."""
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
    )


def make_init(
    network: Callable[[Array], nnx.Module],
    optimizer: Callable[[UInt[Array, ""]], optax.GradientTransformation],
    recipe: Recipe,
    model: ModelSettings,
    layout: Layout,
) -> Callable[[Array, Array], TrainState]:
    """The initial state of a run as a function ``(seed, X)``."""
    activation = ACTIVATIONS[recipe.activation or model.activation]

    def init(seed: UInt[Array, ""], X: Float[Array, "rows *shape"]) -> TrainState:
        init_key, _, noise_key, _ = run_keys(seed)
        functional = functionalize(network(init_key))

        def logits(params: PyTree, X: Array) -> Array:
            return functional.apply(params, functional.state, X, train=True)[0]

        params = initial_parameters(functional.params, recipe, layout, logits, X, activation)
        noise_seed = jax.random.bits(noise_key, (), jnp.uint32)
        optimizer_state = optimizer(noise_seed).init(params)
        scales = scales_and_biases(params)[0] if recipe.gamma_decay is not None else {}
        return TrainState(
            params,
            functional.state,
            optimizer_state,
            power_iteration(params),
            jax.tree.map(jnp.zeros_like, scales),
            seed,
            jnp.zeros((), jnp.int32),
        )

    return init


def _epoch_runner(
    model: nnx.Module, step: Step, refresh: Refresh | None, settings: TrainingSettings
) -> Ahead | Stepwise:
    indexed_step = make_indexed_step(step, settings.augment)
    if loops_are_slow(model):
        return Stepwise(indexed_step, settings.batch_size, refresh)
    # The old state's memory becomes the new one's.
    return Ahead(make_epoch(indexed_step, settings.batch_size, refresh), donate_argnums=0)
