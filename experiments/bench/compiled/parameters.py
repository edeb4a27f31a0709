"""Programs on parameters alone: optimizers' updates, and weights from raw parameters and back."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P
from optax import contrib

import jaxnorm
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.subject import Subject, own_size, placed
from experiments.errors import UserError
from experiments.methods.part import Optimizer
from experiments.training.devices import DATA

#: The kernels of all programs: their name in the table, their number and their shape.
KERNELS, LAYERS, SHAPE = "conv3x3", 12, (3, 3, 256, 256)


def _sgd() -> Optimizer:
    return optax.sgd(0.1, momentum=0.9)


def _muon() -> Optimizer:
    """The steps of Muon for every kernel, seen as a matrix; Adam's for biases."""

    def numbers(w: Any) -> contrib.MuonDimensionNumbers | None:
        inputs = tuple(range(w.ndim - 1))
        return contrib.MuonDimensionNumbers(inputs, w.ndim - 1) if w.ndim > 1 else None

    return contrib.muon(
        0.02, muon_weight_dimension_numbers=lambda params: jax.tree.map(numbers, params)
    )


#: What is last in a chain edits the update that the optimizer before it made.
_SPHERE, _CLIP = jaxnorm.sphere_projection, jaxnorm.clip_by_layer_norm
OPTIMIZERS: Mapping[str, Callable[[], Optimizer]] = {
    "sgd": _sgd,
    "adam": lambda: optax.adam(1e-3),
    "constrain": lambda: optax.chain(_sgd(), _SPHERE()),
    "constrain+clip": lambda: optax.chain(_CLIP(1.0), _sgd(), _SPHERE()),
    "adam+constrain": lambda: optax.chain(optax.adam(1e-3), _SPHERE()),
    "centered_gradient": lambda: optax.chain(jaxnorm.centered_gradient(), _sgd()),
    "clip_by_layer_norm": lambda: optax.chain(_CLIP(1.0), _sgd()),
    "optax.clip_by_global_norm": lambda: optax.chain(optax.clip_by_global_norm(1.0), _sgd()),
    "optax.centralize": lambda: optax.chain(optax.centralize(), _sgd()),
    "optax.adaptive_grad_clip": lambda: optax.chain(optax.adaptive_grad_clip(0.01), _sgd()),
    "optax.contrib.muon": _muon,
}


def update(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """From parameters, the optimizer's state and gradients to the next two."""
    optimizer = OPTIMIZERS[spec.method]()
    kernel, bias = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (SHAPE, SHAPE[-1:]))
    params: Any = {f"layer{i}": {"kernel": kernel, "bias": bias} for i in range(LAYERS)}
    trees = params, jax.eval_shape(optimizer.init, params), params
    arguments = placed(trees, devices, _axes(spec, devices))
    shardings = jax.tree.map(lambda x: x.sharding, arguments[:2])

    def updated(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        result = optax.apply_updates(params, updates), state
        return jax.lax.with_sharding_constraint(result, shardings)

    return Subject(updated, arguments, own_size(arguments[0]), donate=(0, 1))


def _axes(spec: Spec, devices: Sequence[jax.Device]) -> Callable[[Any], P]:
    """Returns the sharded axes of a leaf; what the devices do not divide is replicated."""
    last = {"": 0, "fan-in": 2, "units": 1}[spec.shard]  # Counted from the last axis, from 1.

    def axes(leaf: Any) -> P:
        if not 0 < last <= leaf.ndim or leaf.shape[-last] % len(devices):
            return P()
        return P(*[None] * (leaf.ndim - last), DATA)

    return axes


#: A function from raw parameters to weights, and the raw parameters.
Made = tuple[Callable[[Any], Any], Any]


def _plain(kernels: Any) -> Made:
    """Doubles the kernels: reads and writes each number once."""
    return (lambda raw: jax.tree.map(lambda w: 2 * w, raw)), kernels


def _node(kind: Any, kernels: Any) -> Made:
    return jaxnorm.effective, jaxnorm.reparametrize(kernels, kind)


def _spectral(kernels: Any) -> Made:
    """Spectrally normalizes the kernels, with the power iteration of each training step."""
    raw = jaxnorm.reparametrize(kernels, jaxnorm.SpectrallyNormalized)
    vectors = {f"{name}/kernel": jnp.ones(k["kernel"].shape[-1]) for name, k in kernels.items()}

    def weights(raw: Any) -> Any:
        vectors_now = jax.lax.stop_gradient(jaxnorm.spectral.power_iteration(raw, vectors))
        return jaxnorm.effective(jaxnorm.spectral.attach_singular_vectors(raw, vectors_now))

    return weights, raw


class _Layer(nnx.Module):
    """A layer whose output is its kernel, as the wrapper around it changed it."""

    def __init__(self, kernel: Any):
        self.kernel = nnx.Param(kernel)

    def __call__(self, x: Any) -> Any:
        return self.kernel[...]


def _wrapped(wrapper: Any, kernels: Any) -> Made:
    """Wraps every layer in a wrapper of flax.nnx."""
    rngs = nnx.Rngs(0)
    layers = {n: wrapper(_Layer(k["kernel"]), rngs=rngs) for n, k in kernels.items()}
    parts: Any = nnx.split(nnx.Dict(layers), nnx.Param, ...)
    graph, raw, variables = parts

    def weights(raw: Any) -> Any:
        # Merged anew, because a wrapper's writes must belong to the trace that reads them.
        model = nnx.merge(graph, *jax.tree.map(lambda x: x, (raw, variables)))
        return {name: model[name](None) for name in kernels}

    return weights, raw


def _paramax(kernels: Any) -> Made:
    if importlib.util.find_spec("paramax") is None:
        raise UserError("paramax is not installed: pip install paramax, or leave its row out.")
    equinox, paramax = map(importlib.import_module, ("equinox", "paramax"))
    # It normalizes along the last axis, where the fan-in is then.
    layers = jax.tree.map(
        lambda w: paramax.WeightNormalization(w.reshape(-1, w.shape[-1]).T), kernels
    )
    raw, functions = equinox.partition(layers, equinox.is_array)
    return (lambda raw: paramax.unwrap(equinox.combine(raw, functions))), raw


MAKERS: Mapping[str, Callable[[Any], Made]] = {
    "plain": _plain,
    "cwo": partial(_node, jaxnorm.Scaled),
    "lcw": partial(_node, jaxnorm.LinearlyConstrained),
    "wn": partial(_node, jaxnorm.WeightNormalized),
    "cwn": partial(_node, jaxnorm.CenteredWeightNormalized),
    "ws": partial(_node, jaxnorm.WeightStandardized),
    "sn": _spectral,
    "nnx.WeightNorm": partial(_wrapped, nnx.WeightNorm),
    "nnx.SpectralNorm": partial(_wrapped, nnx.SpectralNorm),
    "paramax.WeightNormalization": _paramax,
}


def effective(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """Weights and the pull-back of their gradient: at least 16 bytes per parameter."""
    # The values do not enter the program, except for vectors of one value per unit.
    kernels = {f"layer{i}": {"kernel": jnp.ones(SHAPE)} for i in range(LAYERS)}
    weights, raw = MAKERS[spec.method](kernels)

    def there_and_back(raw: Any, gradient: Any) -> tuple[Any, Any]:
        value, pull_back = jax.vjp(weights, raw)
        return value, pull_back(gradient)

    trees = jax.eval_shape(lambda: (raw, weights(raw)))
    arguments = placed(trees, devices, _axes(spec, devices))
    return Subject(there_and_back, arguments, own_size(arguments[1]))
