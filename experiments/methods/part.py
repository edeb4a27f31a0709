"""The hooks of a method's part. Each hook does nothing unless a part overrides it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Key, Num, PyTree

from experiments.models.registry import NetworkStyle
from jaxnorm import Layout
from jaxnorm.nnx import Functional

#: ``step -> learning rate``.
Schedule: TypeAlias = Callable[[Int[Array, ""]], Float[Array, ""]]


class Context(NamedTuple):
    """The network that a method is made for.

    Attributes:
        functional: the network's function with its parameters, or their shapes.
        model: the network's structure.
        shape: the shape of one input.
        style: the style of the network, as changed by all parts.
        kernels: the layout of all kernels, which weight decay reaches.
        layout: the layout of constrained kernels.
        hidden: the layout of hidden layers' kernels, which are measured, and noisy.
        adaptive: True for optimizers with a step size per parameter, such as Adam.
        batch_size: rows per step.
        rows_together: the rows of a step whose statistics batch normalization takes together.
        groups: the number of groups of a microbatch for a loss over samples.
        schedule: the learning rate at each step, for parts that set the length of steps.
        rows: training rows, where an optimizer's first state is made; None elsewhere.
    """

    functional: Functional
    model: nnx.Module
    shape: tuple[int, ...]
    style: NetworkStyle
    kernels: Layout
    layout: Layout
    hidden: Layout
    adaptive: bool = False
    batch_size: int = 1
    rows_together: int = 1
    groups: int = 1
    schedule: Schedule | None = None
    rows: Num[Array, "rows *shape"] | None = None

    def logits(self, params: PyTree, X: Array, train: bool = True) -> Array:
        """Returns the network's logits from its plain parameters, in training or not."""
        return self.functional.apply(params, self.functional.state, X, train=train)[0]


class Output(NamedTuple):
    """Result of a forward pass.

    Attributes:
        logits: (rows, classes), or (rows, positions, classes) for tokens.
        model_state: the network's other variables after the pass.
        loss: the method's addition to the cross-entropy.
        extra: further results for the caller.
    """

    logits: Float[Array, "rows *positions classes"]
    model_state: PyTree
    loss: Float[Array, ""]
    extra: Any = None


#: An optax optimizer.
Optimizer: TypeAlias = optax.GradientTransformation

#: Raw parameters, and the optimizer for them.
Prepared: TypeAlias = tuple[PyTree, Optimizer]

#: ``(weights, X) -> Output``.
Forward = Callable[[PyTree, Array], Output]

#: ``(weights, X) -> logits``, in training.
Apply = Callable[[PyTree, Array], Array]

#: ``(raw parameters) -> weights``, for the present state of the method.
Weights = Callable[[PyTree], PyTree]


class Sample(NamedTuple):
    """Training rows between steps, more than a batch has, with the state at that moment.

    Attributes:
        raw: the raw parameters.
        model_state: the network's other variables.
        weights: the function from raw parameters to the network's weights.
        X: the rows.
        y: their labels.
        key: the key of draws.
        shard: places rows on the devices.
    """

    raw: PyTree
    model_state: PyTree
    weights: Weights
    X: Num[Array, "rows *shape"]
    y: Int[Array, "rows *positions"]
    key: Key[Array, ""]
    shard: Callable[[PyTree], PyTree]


@dataclass(frozen=True)
class Part:
    """One idea of a method; its settings are its fields.

    ``params`` are a network's plain parameters, ``raw`` the trained parameters, ``weights`` those
    that the network computes with, ``state`` the part's own state, carried from step to step. All
    hooks are pure; a method applies those of its parts in order, each around the ones before it.
    """

    @property
    def has_statistics(self) -> bool:
        """True if the network normalizes by the batch in training, and not in evaluation."""
        return False

    @property
    def clips(self) -> bool:
        """True if the part clips gradients."""
        return False

    @property
    def rows_per_group(self) -> int:
        """The least number of rows of each group of a batch."""
        return 0

    @property
    def refresh_every(self) -> int:
        """The steps between two calls of `refresh`; 0 for none."""
        return 0

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Returns the normalizers and the activation of the network."""
        return style

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns the initial raw parameters; ``X`` are training rows to fit them to."""
        return params

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Returns the optimizer of the raw parameters; only ``init`` may read the seed."""
        return optimizer

    def state(self, raw: PyTree) -> PyTree:
        """Returns the part's initial state; None for a part without one."""
        return None

    def weights(self, raw: PyTree, state: PyTree) -> PyTree:
        """Returns the raw parameters in the form that `jaxnorm.effective` takes."""
        return raw

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Projects averaged raw parameters back onto the set."""
        return raw

    def clean(self, raw: PyTree, optimizer_state: PyTree) -> PyTree:
        """Returns the raw parameters for evaluation."""
        return raw

    def forward(
        self, forward: Forward, raw: PyTree, state: PyTree, keys: Array, context: Context
    ) -> Forward:
        """Wraps the forward pass in training; ``keys`` has one key per row."""
        return forward

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""] | None:
        """Returns the distance of constrained kernels from their set; None without any."""
        return None

    def after_update(
        self, optimizer_state: PyTree, apply: Apply, raw: PyTree, X: Array, axis_name: str | None
    ) -> PyTree:
        """Returns the optimizer's state after an update, changed by the rows of the batch.

        With an axis name the rows are a device's own, under shard_map and pmap.
        """
        return optimizer_state

    def after_step(self, raw: PyTree, state: PyTree) -> PyTree:
        """Returns the part's state after an update."""
        return state

    def refresh(self, state: PyTree, sample: Sample, context: Context) -> tuple[PyTree, PyTree]:
        """Returns the model state and the part's state, updated from a large sample."""
        return sample.model_state, state

    def settle(self, sample: Sample, context: Context) -> PyTree:
        """Returns the model state that the network is scored with, after an epoch's last update."""
        return sample.model_state


class Call(Part):
    """A part that is one call of the library, which returns parameters and their optimizer."""

    def call(self, params: PyTree, optimizer: Optimizer, context: Context) -> Prepared:
        """Returns the initial raw parameters, and the optimizer for them."""
        raise NotImplementedError

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns the parameters of the call."""
        return self.call(params, optax.identity(), context)[0]

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Returns the optimizer of the call, which depends on the layout and not on values."""
        optimizers: list[Optimizer] = []

        def call(params: PyTree) -> None:
            optimizers.append(self.call(params, optimizer, context)[1])

        jax.eval_shape(call, context.functional.params)
        return optimizers[0]
