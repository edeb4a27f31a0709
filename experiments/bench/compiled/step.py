"""The training step of the experiments, made from shapes alone."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from experiments.analysis.tpu import input_shape
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.subject import Subject, own_size, placed
from experiments.config import Config
from experiments.data.bundled import CHARACTERS, LENGTH
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.normalizer_free import NormalizerFree
from experiments.methods.normalizers import Normalized
from experiments.methods.part import Part
from experiments.methods.table import METHODS
from experiments.models.registry import takes_tokens
from experiments.training.devices import DATA, make_placement
from experiments.training.state import Batch
from experiments.training.trainer import make_trainer

#: The ending of a method's name for private training: per-row gradients, clipped, and noise.
PRIVATE = "+private"


@dataclass(frozen=True)
class FixedMeans(NormalizerFree):
    """`normalizer_free` between two refreshes of the input means."""

    after_update = Part.after_update


#: The methods whose steps can be compiled: beside those of the experiments Flax's own layers, and
#: the one call without the refresh of its input means at every step.
STEPS: Mapping[str, Method] = {
    **METHODS,
    **{
        name: Method(name, f"flax's {name.removeprefix('nnx.')}", (Normalized(name),))
        for name in ("nnx.BatchNorm", "nnx.LayerNorm")
    },
    "normalizer-free+fixed": Method(
        "normalizer-free+fixed", "normalizer-free, means fixed", (FixedMeans(),)
    ),
}


def step(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """Returns the step of a method on the devices; see `experiments.training.step`."""
    data = zeros_for(spec.model, spec.rows_per_device * len(devices))
    network = {name: getattr(spec, name) for name in ("model", "channels", "depth", "width")}
    epsilon = 2.0 if spec.method.endswith(PRIVATE) else None
    config = Config(dtype=spec.dtype, batch_size=data.train_rows, epsilon=epsilon, **network)
    method = STEPS[spec.method.removesuffix(PRIVATE)]
    placement = make_placement("jit", "", devices)
    trainer = make_trainer(method, config.changed(epochs=1), data, placement)
    keys = partial(jax.random.split, jax.random.key(0), data.train_rows)
    batch = jax.eval_shape(lambda X, y: Batch(X, y, keys()), data.X_train, data.y_train)
    state = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), data.X_train)
    state, batch = placed(state, devices, lambda _: P()), placed(batch, devices, lambda _: P(DATA))
    return Subject(trainer.step, (state, batch), own_size(state.params), donate=(0,))


def zeros_for(model: str, rows: int) -> Dataset:
    """Returns data of the network's usual shape, which take no memory."""
    if takes_tokens(model):
        tokens = np.broadcast_to(np.int32(0), (rows, LENGTH))
        return Dataset(tokens, tokens, tokens, tokens, "zeros", len(CHARACTERS))
    X = np.broadcast_to(np.float32(0), (rows, *input_shape(model)))
    y = np.broadcast_to(np.int32(0), rows)
    return Dataset(X, y, X, y, "zeros", 1000 if model == "resnet50" else 10)
