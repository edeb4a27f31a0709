"""The samples, the sigmoid network and the box plots of figures 2 to 4."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.papers.data import find
from experiments.reports.picture import COLOURS, new_figure
from jaxnorm import LinearlyConstrained, effective, reparametrize, variance_preserving_init

#: The layers and the number of units that the figures show.
LAYERS, UNITS = (1, 5, 9), 20

Params = list[dict[str, Any]]
Rows = Float[Array, "samples features"]
Activations = list[Float[np.ndarray, "units samples"]]


def dataset(data_dir: Path | None) -> Dataset:
    """CIFAR-10 in a folder, or the bundled digits as they are."""
    return load("digits" if data_dir is None else find(data_dir, "cifar10"), 0)


def inputs(data_dir: Path | None, samples: int) -> Rows:
    """The first training rows, standardized and flattened."""
    rows = dataset(data_dir).X_train[:samples]
    return jnp.asarray(rows.reshape(len(rows), -1))


def started(
    depth: int, width: int, samples: int, where: Path | None
) -> tuple[Dataset, Rows, Params]:
    """The data, the samples that are looked at, and initial weights of so many layers."""
    data, x = dataset(where), inputs(where, samples)
    return data, x, glorot([x.shape[1], *[width] * (depth - 1), data.num_classes])


def glorot(sizes: Sequence[int]) -> Params:
    """Kernels by Glorot and Bengio and zero biases, a layer an entry."""
    init = jax.nn.initializers.glorot_uniform()
    pairs = list(itertools.pairwise(sizes))
    keys = jax.random.split(jax.random.key(0), len(pairs))
    kernels = [init(k, pair) for k, pair in zip(keys, pairs, strict=True)]
    return [{"kernel": kernel, "bias": jnp.zeros(kernel.shape[1])} for kernel in kernels]


def constrained(params: Params, x: Array) -> Params:
    """The same with zero-sum kernels, rescaled to pre-activations of unit variance on x."""
    nodes = reparametrize(params, LinearlyConstrained)
    result: Params = jax.jit(lambda p, x: variance_preserving_init(apply, p, x))(nodes, x)
    return result


def apply(params: Params, x: Array) -> Array:
    """The logits."""
    return _forward(params, x)[0]


def _forward(params: Params, x: Array) -> tuple[Array, list[Array]]:
    hidden = []
    for layer in params[:-1]:
        x = jax.nn.sigmoid(x @ layer["kernel"] + layer["bias"][None])
        hidden.append(x)
    return x @ params[-1]["kernel"] + params[-1]["bias"][None], hidden


def activations(params: Params, x: Array) -> Activations:
    """Of the hidden layers, a unit a row, in float64: their spread may be tiny."""
    hidden = jax.jit(lambda p, x: _forward(effective(p), x)[1])(params, x)
    return [np.asarray(a, np.float64).T for a in hidden]


def train(
    params: Params, data: Dataset, epochs: int, batch_size: int, rate: float, momentum: float
) -> tuple[Params, float]:
    """SGD on the cross-entropy; returns the parameters and the training accuracy."""
    X = jnp.asarray(data.X_train.reshape(len(data.X_train), -1))
    y = jnp.asarray(data.y_train)
    optimizer = optax.sgd(rate, momentum)

    def loss(params: Params, rows: Array) -> Array:
        logits = apply(effective(params), X[rows])
        return optax.losses.softmax_cross_entropy_with_integer_labels(logits, y[rows]).mean()

    def step(state: Any, rows: Array) -> Any:
        params, memory = state
        updates, memory = optimizer.update(jax.grad(loss)(params, rows), memory, params)
        return (optax.apply_updates(params, updates), memory), None

    steps = len(X) // batch_size
    shuffle = np.random.default_rng(0).permutation
    orders = [shuffle(len(X))[: steps * batch_size] for _ in range(epochs)]
    batches = jnp.asarray(np.concatenate(orders).reshape(-1, batch_size))
    scan = jax.jit(lambda state: jax.lax.scan(step, state, batches)[0])
    params, _ = scan((params, optimizer.init(params)))
    logits = jax.jit(lambda p: apply(effective(p), X))(params)
    return params, float((logits.argmax(1) == y).mean())


def draw(rows: dict[str, Activations]) -> Figure:
    """A row of box plots for each network: the first units of three layers."""
    figure = new_figure(len(LAYERS), len(rows), width=4.6, height=3.2)
    panels = iter(figure.axes)
    for title, layers in rows.items():
        for number in LAYERS:
            axes = next(panels)
            draw_boxes(axes, layers[number - 1][:UNITS], "unit", "activation")
            axes.set(ylim=(-0.02, 1.02), title=f"{title}: layer {number}")
    return figure


def draw_boxes(
    axes: Axes, values: Float[np.ndarray, "groups ..."], group: str, quantity: str
) -> None:
    """One box for each of the groups, numbered from 1; whiskers at the 1% and 99% quantiles."""
    flat = values.reshape(len(values), -1)
    axes.boxplot(list(flat), whis=(1, 99), showfliers=False, medianprops={"color": COLOURS[2]})
    ticks = np.arange(1, len(flat) + 1)
    axes.set_xticks(ticks, [str(tick) if tick == 1 or tick % 5 == 0 else "" for tick in ticks])
    axes.set(xlabel=group, ylabel=quantity)
