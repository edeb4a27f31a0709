"""The trainer of a method on a network and a dataset's shape: its compiled functions."""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Key, Num, PyTree, UInt

import jaxnorm
from experiments.augmentation.table import find_augmentation
from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.data.reading import free_memory, refuse_too_large
from experiments.data.stream import cropped_where_read
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.methods.optimizer import Rates, make_optimizer, rates_of, with_rates
from experiments.methods.own_network import of_own_network
from experiments.methods.part import Context, Optimizer
from experiments.models.from_file import classifier, network_from_file
from experiments.models.own_code import is_from_file
from experiments.models.registry import (
    HEAD,
    build,
    check_label_maps,
    check_tokens,
    plain_style,
    with_network,
)
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.devices import MODEL, ONE_DEVICE, Placement
from experiments.training.epoch import (
    EpochPlan,
    Runner,
    Scanned,
    Stepwise,
    loops_are_slow,
    make_refreshes,
    make_settle,
    steps_per_epoch,
)
from experiments.training.evaluate import make_evaluate, make_watch
from experiments.training.federated import Federated, rows_per_client
from experiments.training.nonfinite import guarded
from experiments.training.parallel import Groups, batch_groups, parallelize, rows_together
from experiments.training.private import check_private, private_optimizer
from experiments.training.refusals import library_refusals
from experiments.training.state import AnyArray, TrainState, run_keys
from experiments.training.step import Step, make_step
from experiments.training.stream import Streamed, StreamedEvaluation
from jaxnorm import Layout, parameter_count
from jaxnorm.nnx import functionalize

#: ``key -> network`` with random parameters.
MakeNetwork = Callable[[Key[Array, ""]], nnx.Module]

#: The least bytes per parameter in training: the parameter, its gradient and its momentum.
BYTES = 3 * 4

#: ``context, seed of noise -> optimizer``.
SeededOptimizer = Callable[[Context, int | UInt[Array, ""]], Optimizer]


class AtRates:
    """An initialization at a learning rate and a decay, which are arguments of its program.

    Args:
        init: ``(seed, X, rates) -> state``.
        rates: the rate and the decay.
    """

    def __init__(self, init: AheadOfTime, rates: Rates):
        self.__wrapped__, self._rates = init, rates

    def __call__(self, seed: Any, X: AnyArray) -> TrainState:
        """Returns the initial state under a seed."""
        state: TrainState = self.__wrapped__(seed, X, self._rates)
        return state

    def by(self, other: "AtRates") -> "AtRates":
        """Returns the initialization by another's program."""
        return AtRates(other.__wrapped__, self._rates)

    @property
    def compilations(self) -> int:
        """The number of compilations."""
        return self.__wrapped__.compilations


class Trainer(NamedTuple):
    """The functions that train one method; compiled once, they serve every seed.

    Attributes:
        method: the method.
        config: the settings.
        context: the network and its layouts.
        network: ``key -> network``.
        plan: the pure functions that make up an epoch.
        init: ``(seed (uint32), X) -> TrainState``, at the rate and decay of the settings.
        epoch: ``(state, X, y) -> (state, metrics)``; it consumes the state.
        guarded_epoch: an epoch that stops changing the state at the first step that is not finite.
        settle: ``(state, X, y) -> state`` after an epoch, as it is scored; it consumes the state.
        evaluate: ``(state, X, y) -> metrics``.
        watch: ``(state, metrics of its epoch) -> Watched``, in one call.
    """

    method: Method
    config: Config
    context: Context
    network: MakeNetwork
    plan: EpochPlan
    init: AtRates
    epoch: Runner
    guarded_epoch: Runner
    settle: Callable[[TrainState, AnyArray, AnyArray], TrainState]
    evaluate: AheadOfTime | StreamedEvaluation
    watch: AheadOfTime

    @property
    def layout(self) -> Layout:
        """The layout of the kernels that the method constrains."""
        return self.context.layout

    @property
    def placement(self) -> Placement:
        """The devices."""
        return self.plan.placement

    def by(self, other: "Trainer") -> "Trainer":
        """Returns the trainer with the compiled functions of one whose programs are equal."""
        names = ("epoch", "guarded_epoch", "settle", "evaluate", "watch")
        programs: dict[str, Any] = {name: getattr(other, name) for name in names}
        return self._replace(init=self.init.by(other.init), **programs)

    @property
    def step(self) -> Step:
        """The step ``(state, batch) -> (state, metrics)``."""
        return self.plan.step


def make_trainer(
    method: Method,
    config: Config,
    dataset: Dataset,
    placement: Placement = ONE_DEVICE,
    grouped: Placement | None = None,
) -> Trainer:
    """Makes the trainer of a method for datasets of the same shapes as ``dataset``.

    Args:
        method: the method.
        config: the settings.
        dataset: has the shapes of the rows.
        placement: the devices.
        grouped: the devices whose groups a batch has, if they are not those of the placement: one
            device then computes what these compute under jit.

    Raises:
        UserError: for data, devices, a method or a network that do not go together.
    """
    method, config = _suited(method, config, dataset)
    dataset, augmentation = cropped_where_read(dataset, config.augment)
    rows = rows_per_client(dataset, config.clients) if config.clients else dataset.train_rows
    steps = config.epochs * steps_per_epoch(rows, config.batch_size)

    groups = batch_groups(method, config, placement if grouped is None else grouped)
    network = _network(method, config.changed(ghost_groups=groups.batch_norm), dataset)
    context = _context(method, network, config, dataset, groups, placement)
    optimizer = partial(_optimizer, method, config, steps, rows)

    step = _placed_step(method, context, optimizer, config, placement)
    shape, has_maps = dataset.X_train.shape[1:], dataset.has_label_maps
    augment = find_augmentation(augmentation, dataset.name, shape, has_maps)
    refreshes = make_refreshes(method, context, placement)
    plan = EpochPlan(step, config.batch_size, augment, refreshes, placement)
    guarded_plan = plan._replace(step=guarded(step, goes_on=False))
    return Trainer(
        method,
        config,
        context,
        network,
        plan,
        init=AtRates(
            AheadOfTime(make_init(method, context, network, optimizer, placement)), rates_of(config)
        ),
        epoch=_runner(method, config, context, dataset, plan),
        guarded_epoch=_runner(method, config, context, dataset, guarded_plan),
        settle=_settle(method, context, placement),
        evaluate=_evaluation(method, context, dataset, placement),
        watch=AheadOfTime(make_watch(method, context)),
    )


def _suited(method: Method, config: Config, dataset: Dataset) -> tuple[Method, Config]:
    """Returns the method, and the settings with a named network, that suit a dataset."""
    has_maps = dataset.has_label_maps
    config = with_network(config, dataset.X_train.shape[1:], has_maps)
    if is_from_file(config.model):
        method = of_own_network(method, config)
    check_tokens(config.model, dataset.name, dataset.X_train.dtype)
    check_label_maps(config.model, dataset.name, has_maps)
    return method, config


def _network(method: Method, config: Config, dataset: Dataset) -> MakeNetwork:
    """Makes the function ``key -> network`` for the rows and labels of a dataset."""
    shape, positions = dataset.X_train.shape[1:], dataset.y_train.shape[1:]
    return partial(network_of, method, config, shape, dataset.num_classes, positions=positions)


def _context(
    method: Method,
    network: MakeNetwork,
    config: Config,
    dataset: Dataset,
    groups: Groups,
    placement: Placement,
) -> Context:
    """Makes a method's context on a dataset, and refuses a network that does not go with it."""
    model = abstract_network(network, placement)
    with library_refusals(method):
        context = make_context(method, model, config, dataset.X_train.shape[1:], groups.losses)
    check_private(method, context, config, placement)
    return context._replace(rows_together=rows_together(config, groups, placement))


def _placed_step(
    method: Method,
    context: Context,
    optimizer: SeededOptimizer,
    config: Config,
    placement: Placement,
) -> Step:
    """Makes the step on its devices, which leaves out updates that are not finite if it should."""
    with library_refusals(method, context):
        step = make_step(method, context, optimizer(context, 0), config, placement.axis_name)
    step = parallelize(step, placement)
    # Outside of the parallel step, where all devices have the same metrics.
    return guarded(step) if config.nonfinite == "skip" else step


def _evaluation(
    method: Method, context: Context, dataset: Dataset, placement: Placement
) -> AheadOfTime | StreamedEvaluation:
    """Makes the evaluation of rows in memory, or of a stream of them."""
    pure = make_evaluate(method, context.functional.apply, placement=placement)
    in_memory = dataset.stream is None
    return AheadOfTime(pure) if in_memory else StreamedEvaluation(pure, dataset, placement)


def _settle(
    method: Method, context: Context, placement: Placement
) -> Callable[[TrainState, AnyArray, AnyArray], TrainState]:
    """Makes the function from the state after an epoch to the one that is scored."""
    if not jax.tree.leaves(context.functional.state):
        return lambda state, X, y: state
    return AheadOfTime(make_settle(method, context, placement), donate_argnums=0)


class Trainers:
    """The trainers made so far, which all seeds of a method share.

    Args:
        placement: the devices.
        most: the number of the newest that are kept.
        grouped: the devices whose groups a batch has, if they are others (`make_trainer`).
    """

    def __init__(
        self,
        placement: Placement = ONE_DEVICE,
        most: float = math.inf,
        grouped: Placement | None = None,
    ):
        self._placement, self._most, self._grouped = placement, most, grouped
        self._made: dict[tuple[object, ...], Trainer] = {}

    def empty(self) -> "Trainers":
        """Returns trainers for the same devices, of which none is made."""
        return Trainers(self._placement, self._most, self._grouped)

    def of(self, method: Method, config: Config, dataset: Dataset) -> Trainer:
        """Returns the trainer of a method, for data of the shapes of ``dataset``."""
        key = (method, config, dataset.name, dataset.X_train.shape, dataset.num_classes)
        if key not in self._made:
            while len(self._made) >= self._most:
                del self._made[next(iter(self._made))]
            made = make_trainer(method, config, dataset, self._placement, self._grouped)
            self._made[key] = made
        return self._made[key]


def _optimizer(
    method: Method, config: Config, steps: int, rows: int, context: Context, seed: Any
) -> Optimizer:
    """Makes the method's optimizer, of the gradient or, with an epsilon, of per-row gradients."""
    optimizer = make_optimizer(method, config, steps, context, seed)
    if config.epsilon is None:
        return optimizer
    share = config.batch_size / rows
    return private_optimizer(optimizer, config.epsilon, share, steps, rows, seed)


def _runner(
    method: Method, config: Config, context: Context, dataset: Dataset, plan: EpochPlan
) -> Runner:
    """Chooses the runner that suits the data and the network."""
    if config.clients is not None:
        return Federated(plan, partial(method.projected, context=context), config.clients)
    if dataset.stream:
        return Streamed(plan, dataset)
    return Stepwise(plan) if loops_are_slow(context.model) else Scanned(plan)


def make_context(
    method: Method, model: nnx.Module, config: Config, shape: Sequence[int], groups: int = 1
) -> Context:
    """Makes the context of a method: the network, and layouts traced from it.

    Args:
        method: the method.
        model: the network's structure.
        config: the settings of the training.
        shape: the shape of one input.
        groups: the number of groups of a microbatch for a loss over samples.
    """
    functional = functionalize(model, mixed_precision=True)
    x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)

    def logits(params: PyTree, state: PyTree, x: Array) -> Array:
        return functional.apply(params, state, x, train=False)[0]

    variables = functional.params, functional.state
    net = jaxnorm.read(logits, *variables, x)
    kernels = jaxnorm.traced_layout(net)
    head = f"(^|/){HEAD}/"
    if is_from_file(config.model):
        head = f"^{re.escape(classifier(config.model, net))}$"
    hidden = jaxnorm.exclude(head, layout=kernels)
    return Context(
        functional,
        model,
        tuple(shape),
        method.style(plain_style(config)),
        kernels,
        kernels if config.constrain_head else hidden,
        hidden,
        adaptive=config.optimizer != "sgd",
        batch_size=config.batch_size,
        groups=groups,
    )


def network_of(
    method: Method,
    config: Config,
    shape: Sequence[int],
    num_classes: int,
    key: Key[Array, ""],
    positions: Sequence[int] = (),
) -> nnx.Module:
    """Makes the network of a method, with random parameters, for labels at these positions."""
    style, rngs = method.style(plain_style(config)), nnx.Rngs(key)
    if is_from_file(config.model):
        return network_from_file(config.model, shape, num_classes, rngs, style.norm, positions)
    return build(config, shape, num_classes, rngs, **style._asdict())


def make_init(
    method: Method,
    context: Context,
    network: MakeNetwork,
    optimizer: SeededOptimizer,
    placement: Placement = ONE_DEVICE,
) -> Callable[..., TrainState]:
    """Makes the function ``(seed, X, rates) -> initial state`` of a run.

    Without rates they are those of the optimizer's settings.
    """

    def init(
        seed: UInt[Array, ""], X: Num[Array, "rows *shape"], rates: Rates | None = None
    ) -> TrainState:
        init_key, _, noise_key, _ = run_keys(seed)
        functional = functionalize(network(init_key))
        own = context._replace(functional=functional)
        with library_refusals(method, own):
            raw = method.parameters(functional.params, own, X)
            noise_seed = jax.random.bits(noise_key, (), jnp.uint32)
            optimizer_state = optimizer(own._replace(rows=X), noise_seed).init(raw)
        if rates is not None:
            optimizer_state = with_rates(optimizer_state, rates)
        state = TrainState(
            raw,
            functional.state,
            optimizer_state,
            method.state(raw),
            seed,
            epoch=jnp.zeros((), jnp.int32),
            skipped=jnp.zeros((), jnp.int32),
        )
        return placement.keep(state)

    return init


def abstract_network(network: MakeNetwork, placement: Placement) -> nnx.Module:
    """Returns the structure of a network, without computing parameters.

    Raises:
        UserError: for more parameters than a device can hold.
    """
    model = nnx.eval_shape(lambda: network(jax.random.key(0)))
    count = parameter_count(nnx.state(model, nnx.Param))
    parts = 1 if placement.mesh is None else placement.mesh.shape[MODEL]
    refuse_too_large(
        f"training a network of {count:,} parameters",
        BYTES * count // parts,
        "take a smaller --width, --channels or --depth",
        device_memory(),
    )
    return model


def device_memory() -> int:
    """Returns the bytes of memory per device of this process; of the machine for a CPU."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", 0) or free_memory()


def check_rows_apart(trainers: Sequence[Trainer], dataset: Dataset) -> None:
    """Raises UserError for a network in whose evaluation a row's logits depend on another row.

    They would be other logits in another batch. One row is evaluated beside two others, once per
    structure of the parameters: with batch normalization and without.
    """
    networks, rows = [trainer.context.functional for trainer in trainers], len(dataset.X_train)
    distinct = {jax.tree.structure((each.params, each.state)): each for each in networks}
    for network in distinct.values():
        params = jax.tree.map(_any_value, network.params)
        state = jax.tree.map(_statistic, network.state)
        logits = jax.jit(partial(network.apply, train=False))
        one, other = (
            np.asarray(logits(params, state, dataset.X_train[[0, row % rows]])[0][0], np.float32)
            for row in (1, 2)
        )
        finite = np.isfinite(one).all()  # Else its training diverges.
        if finite and not np.allclose(one, other, rtol=1e-3, atol=1e-5 * np.abs(one).max()):
            raise UserError(
                f"{trainers[0].config.model} gives a row other logits beside another row in "
                "evaluation; wanted logits of each row alone: normalize within a row, or by "
                "statistics that training keeps (nnx.BatchNorm without use_running_average=False)."
            )


def _any_value(shape: Any) -> Any:
    """Returns an array of that shape and type: weights of a usual size, or ones."""
    if len(shape.shape) < 2 or not jnp.issubdtype(shape.dtype, jnp.floating):
        return _statistic(shape)
    values = np.random.default_rng(0).normal(size=shape.shape)
    return jnp.asarray(values / math.sqrt(math.prod(shape.shape[:-1])), shape.dtype)


def _statistic(shape: Any) -> Any:
    """Returns ones, which a mean and a variance may be, or a random key."""
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), shape.shape)
    return jnp.ones(shape.shape, shape.dtype)
