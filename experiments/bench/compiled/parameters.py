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
from optax import contrib

import jaxnorm
from experiments.bench.compiled.placing import own_size, placed, shardings
from experiments.bench.compiled.spec import Spec, Subject
from experiments.bench.compiled.step import kernel_shapes
from experiments.config import UserError
from experiments.methods.part import Optimizer
from experiments.methods.rivals.hyperball import hyperball
from experiments.methods.rivals.nero import normalize_units

Shapes = Sequence[tuple[int, ...]]


def decoder_kernels(width: int = 1024, layers: int = 24) -> Shapes:
    """Returns the kernel shapes of a decoder's blocks, those of GPT-2 medium: 302M weights."""
    attention = [(width, 3 * width), (width, width)]
    return layers * [*attention, (width, 4 * width), (4 * width, width)]


KERNELS: Mapping[str, Callable[[], Shapes]] = {
    "conv3x3": lambda: 12 * [(3, 3, 256, 256)],
    "dense": lambda: 6 * [(1024, 1024)],
    "resnet50": partial(kernel_shapes, "resnet50"),
    "wrn28x10": partial(kernel_shapes, "wrn28x10"),
    "decoder": decoder_kernels,
}


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
    "unit-norm": lambda: optax.chain(_sgd(), _SPHERE(squared_radius=1.0, centered=False)),
    "centered_gradient": lambda: optax.chain(jaxnorm.centered_gradient(), _sgd()),
    "clip_by_layer_norm": lambda: optax.chain(_CLIP(1.0), _sgd()),
    "optax.clip_by_global_norm": lambda: optax.chain(optax.clip_by_global_norm(1.0), _sgd()),
    "optax.centralize": lambda: optax.chain(optax.centralize(), _sgd()),
    "optax.adaptive_grad_clip": lambda: optax.chain(optax.adaptive_grad_clip(0.01), _sgd()),
    "optax.contrib.muon": _muon,
    "nero": lambda: optax.chain(
        normalize_units(jaxnorm.flax_layout, 0.999), _sgd(), _SPHERE(squared_radius=1.0)
    ),
    "hyperball": lambda: hyperball(_sgd(), jaxnorm.flax_layout, 0.02),
    "muon+stiefel": lambda: optax.chain(_muon(), jaxnorm.stiefel_projection(tangent=True)),
}


def update(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """From parameters, the optimizer's state and gradients to the next two."""
    optimizer = OPTIMIZERS[spec.method]()
    params: Any = {
        f"layer{i}": {
            "kernel": jax.ShapeDtypeStruct(shape, jnp.float32),
            "bias": jax.ShapeDtypeStruct(shape[-1:], jnp.float32),
        }
        for i, shape in enumerate(KERNELS[spec.model]())
    }

    def updated(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        result = optax.apply_updates(params, updates), state
        if len(devices) == 1:
            return result
        return jax.lax.with_sharding_constraint(result, shardings(result, devices, spec.shard))

    shapes = params, jax.eval_shape(optimizer.init, params), params
    arguments = placed(shapes, devices, spec.shard)
    return Subject(updated, arguments, own_size(arguments[0]), donate=(0, 1))


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
        vectors_now = jax.lax.stop_gradient(jaxnorm.power_iteration(raw, vectors))
        return jaxnorm.effective(jaxnorm.attach_singular_vectors(raw, vectors_now))

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
    shapes = KERNELS[spec.model]()
    kernels = {f"layer{i}": {"kernel": jnp.ones(shape)} for i, shape in enumerate(shapes)}
    weights, raw = MAKERS[spec.method](kernels)

    def there_and_back(raw: Any, gradient: Any) -> tuple[Any, Any]:
        value, pull_back = jax.vjp(weights, raw)
        return value, pull_back(gradient)

    arguments = placed(jax.eval_shape(lambda: (raw, weights(raw))), devices, spec.shard)
    size = own_size(placed(jax.eval_shape(lambda: kernels), devices, spec.shard))
    return Subject(there_and_back, arguments, size)
