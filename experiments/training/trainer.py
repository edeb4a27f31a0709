"""A method on a network and a dataset's shape, as compiled functions."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Key, UInt

import jaxnorm
from experiments.data.augmentations import Augment, find_augmentation
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.optimizer import OptimizerSettings, make_optimizer
from experiments.methods.part import Context
from experiments.models.registry import HEAD, ModelSettings, build, plain_style
from experiments.reading import free_memory, refuse_too_large
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.devices import MODEL, ONE_DEVICE, Placement
from experiments.training.epoch import Refresh, make_refreshes, steps_per_epoch
from experiments.training.evaluate import make_evaluate
from experiments.training.groups import batch_groups
from experiments.training.nonfinite import NonFinite, guarded
from experiments.training.parallel import parallelize
from experiments.training.runners import Runner, Scanned, Stepwise, loops_are_slow
from experiments.training.state import TrainState, run_keys
from experiments.training.step import Step, make_step
from experiments.training.stream import Streamed, StreamedEvaluation
from jaxnorm import Layout
from jaxnorm.nnx import functionalize

#: The bytes of each parameter that training holds at least: itself, its gradient, its momentum.
BYTES = 3 * 4

#: ``key -> network``, with random parameters, or under `nnx.eval_shape` without.
MakeNetwork = Callable[[Key[Array, ""]], nnx.Module]

#: ``seed of noise -> optimizer``.
SeededOptimizer = Callable[[int | UInt[Array, ""]], optax.GradientTransformation]


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
        method: what is trained.
        settings: what it shares with the others.
        context: what the method was made for.
        network: ``key -> network``.
        init: ``(seed (uint32), X) -> TrainState``.
        step: ``(state, batch) -> (state, metrics)``, pure and not compiled.
        refreshes: what is done between steps.
        epoch: ``(state, X, y) -> (state, metrics)``; it consumes the state.
        careful_epoch: the same, up to the first step that is not finite.
        evaluate: ``(state, X, y) -> metrics``.
    """

    method: Method
    settings: TrainingSettings
    context: Context
    network: MakeNetwork
    init: AheadOfTime
    step: Step
    refreshes: tuple[Refresh, ...]
    epoch: Runner
    careful_epoch: Runner
    evaluate: AheadOfTime | StreamedEvaluation

    @property
    def layout(self) -> Layout:
        """The kernels that the method constrains."""
        return self.context.layout


def make_trainer(method: Method, settings: TrainingSettings, dataset: Dataset) -> Trainer:
    """The trainer of a method for datasets of the same shapes as ``dataset``."""
    shape, placement = dataset.X_train.shape[1:], settings.placement
    settings = settings._replace(model=settings.model.on(shape))
    augment = find_augmentation(settings.augment, dataset.name, shape)
    groups = batch_groups(
        method, placement, settings.batch_size, settings.accumulate, settings.model.groups
    )
    sizes = settings.model._replace(groups=groups.batch_norm)
    network = partial(network_of, method, sizes, shape, dataset.num_classes)
    model = abstract_network(network, placement)
    context = make_context(method, model, settings, shape, groups.losses)
    steps = settings.epochs * steps_per_epoch(dataset.train_rows, settings.batch_size)
    optimizer = partial(make_optimizer, method, settings.optimizer, steps, context)

    step = make_step(
        method,
        context,
        optimizer(0),
        axis_name=placement.axis_name,
        accumulate=settings.accumulate,
        dtype=settings.dtype,
    )
    step = parallelize(step, placement)
    if settings.nonfinite == "skip":
        # Guarded outside: there all devices have the same metrics.
        step = guarded(step)
    refreshes = make_refreshes(method, context, placement)
    runner = partial(_runner, model, settings, augment, dataset, refreshes)
    evaluate = make_evaluate(method, context.functional.apply, placement=placement)
    return Trainer(
        method,
        settings,
        context,
        network,
        init=AheadOfTime(make_init(method, context, network, optimizer, placement)),
        step=step,
        refreshes=refreshes,
        epoch=runner(step),
        careful_epoch=runner(guarded(step, goes_on=False)),
        evaluate=(
            StreamedEvaluation(evaluate, dataset, placement)
            if dataset.stream
            else AheadOfTime(evaluate)
        ),
    )


def make_context(
    method: Method,
    model: nnx.Module,
    settings: TrainingSettings,
    shape: Sequence[int],
    groups: int = 1,
) -> Context:
    """What a method is made for; which leaves are kernels is read off the network.

    Args:
        method: the method.
        model: the network's structure.
        settings: of the training.
        shape: of one input.
        groups: the parts of a microbatch that a loss over samples sees apart.
    """
    functional = functionalize(model, mixed_precision=True)
    x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    kernels = jaxnorm.traced_layout(
        lambda params, state, x: functional.apply(params, state, x, train=False)[0],
        functional.params,
        functional.state,
        x,
    )
    hidden = jaxnorm.exclude(f"(^|/){HEAD}/", layout=kernels)
    return Context(
        functional,
        model,
        tuple(shape),
        method.style(plain_style(settings.model)),
        kernels,
        kernels if settings.constrain_head else hidden,
        hidden,
        adaptive=settings.optimizer.name == "adam",
        batch_size=settings.batch_size,
        groups=groups,
    )


def network_of(
    method: Method,
    model: ModelSettings,
    shape: Sequence[int],
    num_classes: int,
    key: Key[Array, ""],
) -> nnx.Module:
    """The network of a method, with random parameters."""
    style = method.style(plain_style(model))
    return build(model, shape, num_classes, nnx.Rngs(key), **style._asdict())


def make_init(
    method: Method,
    context: Context,
    network: MakeNetwork,
    optimizer: SeededOptimizer,
    placement: Placement = ONE_DEVICE,
) -> Callable[[Array, Array], TrainState]:
    """The initial state of a run as a function ``(seed, X)``."""

    def init(seed: UInt[Array, ""], X: Float[Array, "rows *shape"]) -> TrainState:
        init_key, _, noise_key, _ = run_keys(seed)
        functional = functionalize(network(init_key))
        raw = method.parameters(functional.params, context._replace(functional=functional), X)
        noise_seed = jax.random.bits(noise_key, (), jnp.uint32)
        state = TrainState(
            raw,
            functional.state,
            optimizer(noise_seed).init(raw),
            method.state(raw),
            seed,
            epoch=jnp.zeros((), jnp.int32),
            skipped=jnp.zeros((), jnp.int32),
        )
        return placement.keep(state)

    return init


def abstract_network(network: MakeNetwork, placement: Placement) -> nnx.Module:
    """The structure of a network alone, without computing parameters.

    Raises:
        UserError: for more parameters than a device can hold.
    """
    model = nnx.eval_shape(lambda: network(jax.random.key(0)))
    shapes = [leaf.shape for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))]
    count = sum(map(math.prod, shapes))
    parts = 1 if placement.mesh is None else placement.mesh.shape[MODEL]
    refuse_too_large(
        f"training a network of {count:,} parameters",
        BYTES * count // parts,
        "take a smaller --width, --channels or --depth",
        device_memory(),
    )
    return model


def device_memory() -> int:
    """The bytes of a device of this process; a processor's are the machine's."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", 0) or free_memory()


def _runner(
    model: nnx.Module,
    settings: TrainingSettings,
    augment: Augment,
    dataset: Dataset,
    refreshes: Sequence[Refresh],
    step: Step,
) -> Runner:
    size = settings.batch_size
    if dataset.stream:
        return Streamed(step, dataset, size, augment, refreshes, settings.placement)
    if loops_are_slow(model):
        return Stepwise(step, size, augment, refreshes)
    return Scanned(step, size, augment, refreshes, settings.placement)
