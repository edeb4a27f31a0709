"""The training step of the experiments, made from shapes alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.analysis.tpu import input_shape
from experiments.bench.compiled.names import PRIVATE
from experiments.bench.compiled.sharding import on, own_size, placed, rows_on
from experiments.bench.compiled.spec import Spec, Subject
from experiments.bench.shapes import shapes_of, zeros
from experiments.config import Config
from experiments.data.bundled import CHARACTERS, LENGTH
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.normalizers import Normalized
from experiments.methods.table import METHODS
from experiments.models.registry import takes_tokens
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.trainer import make_trainer

#: Flax's own layers, to compare with the methods of the experiments.
PEERS: Mapping[str, Method] = {
    name: Method(name, f"flax's {name.removeprefix('nnx.')}", (Normalized(name),))
    for name in ("nnx.BatchNorm", "nnx.LayerNorm")
}

#: The number of classes by model, where it is not 10.
_CLASSES: Mapping[str, int] = {"resnet50": 1000}


def step_subject(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """Returns the step of a method on the devices; see `experiments.training.step`."""
    placement = placed(spec, devices)
    step, arguments = _step(spec, placement)
    return Subject(
        step, arguments, _step(spec, ONE_DEVICE), own_size(arguments[0].params), donate=(0,)
    )


def _step(spec: Spec, placement: Placement) -> tuple[Any, tuple[Any, ...]]:
    data = _data(spec.model, spec.rows * placement.data_devices)
    names = ("model", "dtype", "channels", "depth", "width")
    sizes: dict[str, Any] = {name: getattr(spec, name) for name in names}
    epsilon = 2.0 if spec.method.endswith(PRIVATE) else None
    config = Config(**sizes, batch_size=data.train_rows, epochs=1, epsilon=epsilon)
    method = {**METHODS, **PEERS}[spec.method.removesuffix(PRIVATE)]
    trainer = make_trainer(method, config, data, placement)
    state, batch = shapes_of(trainer, *data[:2])
    return trainer.step, (on(placement, state), rows_on(placement, batch))


def _data(model: str, rows: int) -> Dataset:
    if not takes_tokens(model):
        return zeros(input_shape(model), rows, _CLASSES.get(model, 10))
    tokens = np.broadcast_to(np.int32(0), (rows, LENGTH))
    return Dataset(tokens, tokens, tokens, tokens, "zeros", len(CHARACTERS))
