"""The training step of the experiments, made from shapes alone."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.analysis.tpu import input_shape
from experiments.bench.compiled.placing import own_size, placed, rows_over
from experiments.bench.compiled.spec import Spec, Subject
from experiments.config import Config
from experiments.data.bundled import CHARACTERS, LENGTH
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.normalizers import Normalized
from experiments.methods.table import METHODS
from experiments.models.registry import takes_tokens
from experiments.training.devices import make_placement
from experiments.training.state import Batch, TrainState
from experiments.training.trainer import Trainer, make_trainer

#: The ending of a method's name for private training: per-row gradients, clipped, and noise.
PRIVATE = "+private"

#: Flax's own layers, to compare with the methods of the experiments.
PEERS: Mapping[str, Method] = {
    name: Method(name, f"flax's {name.removeprefix('nnx.')}", (Normalized(name),))
    for name in ("nnx.BatchNorm", "nnx.LayerNorm")
}


def step(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """Returns the step of a method on the devices; see `experiments.training.step`."""
    data = zeros_for(spec.model, spec.rows * len(devices))
    config = Config(
        model=spec.model,
        dtype=spec.dtype,
        channels=spec.channels,
        depth=spec.depth,
        width=spec.width,
        batch_size=data.train_rows,
        epochs=1,
        epsilon=2.0 if spec.method.endswith(PRIVATE) else None,
    )
    method = {**METHODS, **PEERS}[spec.method.removesuffix(PRIVATE)]
    trainer = make_trainer(method, config, data, make_placement("jit", "", devices))
    state, batch = shapes_of(trainer, data)
    arguments = placed(state, devices), rows_over(batch, devices)
    return Subject(trainer.step, arguments, own_size(arguments[0].params), donate=(0,))


def zeros_for(model: str, rows: int) -> Dataset:
    """Returns data of the network's usual shape, which take no memory."""
    if takes_tokens(model):
        tokens = np.broadcast_to(np.int32(0), (rows, LENGTH))
        return Dataset(tokens, tokens, tokens, tokens, "zeros", len(CHARACTERS))
    X = np.broadcast_to(np.float32(0), (rows, *input_shape(model)))
    y = np.broadcast_to(np.int32(0), rows)
    return Dataset(X, y, X, y, "zeros", 1000 if model == "resnet50" else 10)


def shapes_of(trainer: Trainer, data: Dataset) -> tuple[TrainState, Batch]:
    """Returns the shapes of the training state and of a batch of all rows."""
    X, y = data.X_train, data.y_train
    state = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), X)
    keys = partial(jax.random.split, jax.random.key(0), len(X))
    return state, jax.eval_shape(lambda X, y: Batch(X, y, keys()), X, y)


def kernel_shapes(model: str) -> list[tuple[int, ...]]:
    """Returns the kernel shapes of a network of the experiments, of the paper's width."""
    data = zeros_for(model, 1)
    config = Config(model=model, channels=64, batch_size=1, epochs=1)
    state, _ = shapes_of(make_trainer(METHODS["none"], config, data), data)
    paths: list[tuple[Any, Any]] = jax.tree_util.tree_leaves_with_path(state.params)
    return [leaf.shape for path, leaf in paths if "kernel" in jax.tree_util.keystr(path[-1:])]
