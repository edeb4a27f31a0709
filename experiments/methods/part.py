"""What a part of a method may do. Every hook does nothing unless a part says otherwise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Key, Num, PyTree

from experiments.models.registry import NetworkStyle
from jaxnorm import Layout
from jaxnorm.nnx import Functional

#: ``step -> learning rate``.
Schedule: TypeAlias = Callable[[Int[Array, ""]], Float[Array, ""]]


class Context(NamedTuple):
    """What a method is made for.

    Attributes:
        functional: the network, or its structure.
        model: its structure.
        shape: of one input.
        style: of the network, as all parts together want it.
        kernels: all kernels, which weight decay reaches.
        layout: the kernels that are constrained.
        hidden: the kernels of hidden layers, which are measured, and noisy.
        adaptive: whether the optimizer scales each number's gradient on its own, as Adam does.
        batch_size: the rows of a step.
        groups: the contiguous parts of a microbatch that a loss over samples sees apart.
        schedule: the learning rate at each step, for parts that set the length of steps.
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
    groups: int = 1
    schedule: Schedule | None = None


class Output(NamedTuple):
    """What a forward pass gives.

    Attributes:
        logits: (rows, classes), or of tokens (rows, positions, classes).
        model_state: the network's other variables after it.
        loss: what the method adds to the cross-entropy.
        seen: whatever else whoever asked wants to know.
    """

    logits: Float[Array, "rows *positions classes"]
    model_state: PyTree
    loss: Float[Array, ""]
    seen: Any = None


#: An optimizer as optax has it.
Optimizer: TypeAlias = optax.GradientTransformation

#: ``(weights, X) -> Output``.
Forward = Callable[[PyTree, Array], Output]

#: ``(raw parameters) -> weights``, with the method's state as it is.
Weights = Callable[[PyTree], PyTree]


class Sample(NamedTuple):
    """Training rows that are looked at between steps, more of them than a batch has, and by whom.

    Attributes:
        raw: the raw parameters at that moment.
        model_state: the network's other variables.
        weights: what the network computes with, of raw parameters.
        X: the rows.
        y: their labels.
        key: for what is drawn.
        shard: puts rows of it on the devices.
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

    ``params`` are a network's plain parameters, ``raw`` what is trained, ``weights`` what the
    network computes with, ``own`` what the part itself carries from step to step. All hooks are
    pure; a method applies those of its parts in order, each around the ones before it.
    """

    @property
    def rows_of_a_group(self) -> int:
        """The rows that each group of a batch must have."""
        return 0

    @property
    def refresh_every(self) -> int:
        """The steps between two calls of `refresh`; 0 for none."""
        return 0

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """How the network is normalized and activated."""
        return style

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """The initial raw parameters; ``X`` are training rows to fit them to."""
        return params

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """The optimizer of the raw parameters; only ``init`` may read the seed."""
        return optimizer

    def state(self, raw: PyTree) -> PyTree:
        """What is carried from step to step, beside parameters; None for nothing."""
        return None

    def weights(self, raw: PyTree, own: PyTree) -> PyTree:
        """The raw parameters as `jaxnorm.effective` takes them."""
        return raw

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Raw parameters that were averaged, back on the set."""
        return raw

    def clean(self, raw: PyTree, optimizer_state: PyTree) -> PyTree:
        """The raw parameters as they are evaluated."""
        return raw

    def forward(
        self, forward: Forward, raw: PyTree, own: PyTree, keys: Array, context: Context
    ) -> Forward:
        """The network in training; ``keys`` are one a row."""
        return forward

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""] | None:
        """How far constrained kernels are from their set; None where nothing is constrained."""
        return None

    def after_step(self, raw: PyTree, own: PyTree) -> PyTree:
        """What is carried on, after an update."""
        return own

    def refresh(self, own: PyTree, sample: Sample, context: Context) -> tuple[PyTree, PyTree]:
        """The model state and what is carried on, after a look at a large sample."""
        return sample.model_state, own
