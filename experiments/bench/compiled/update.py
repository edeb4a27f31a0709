"""An optimizer's update of a network's parameters: ours, and others'."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import optax
from optax import contrib

import jaxnorm
from experiments.bench.compiled.kernels import params_of
from experiments.bench.compiled.sharding import on, own_size, placed
from experiments.bench.compiled.spec import Spec, Subject
from experiments.methods.part import Optimizer
from experiments.methods.rivals.hyperball import hyperball
from experiments.methods.rivals.nero import normalize_units

_SPHERE = jaxnorm.sphere_projection


def _sgd() -> Optimizer:
    return optax.sgd(0.1, momentum=0.9)


def _muon() -> Optimizer:
    """The steps of Muon for every kernel, seen as a matrix; Adam's for biases."""

    def matrices(params: Any) -> Any:
        def numbers(w: Any) -> contrib.MuonDimensionNumbers | None:
            if w.ndim < 2:
                return None
            return contrib.MuonDimensionNumbers(tuple(range(w.ndim - 1)), w.ndim - 1)

        return jax.tree.map(numbers, params)

    return contrib.muon(0.02, muon_weight_dimension_numbers=matrices)


def _nero() -> Optimizer:
    normalize = normalize_units(jaxnorm.flax_layout, 0.999)
    return optax.chain(normalize, _sgd(), _SPHERE(squared_radius=1.0))


#: What is last in a chain edits the update that the optimizer before it made.
OPTIMIZERS: Mapping[str, Callable[[], Optimizer]] = {
    "sgd": _sgd,
    "adam": lambda: optax.adam(1e-3),
    "constrain": lambda: optax.chain(_sgd(), _SPHERE()),
    "constrain+clip": lambda: optax.chain(jaxnorm.clip_by_layer_norm(1.0), _sgd(), _SPHERE()),
    "adam+constrain": lambda: optax.chain(optax.adam(1e-3), _SPHERE()),
    "unit-norm": lambda: optax.chain(_sgd(), _SPHERE(squared_radius=1.0, centered=False)),
    "centered_gradient": lambda: optax.chain(jaxnorm.centered_gradient(), _sgd()),
    "clip_by_layer_norm": lambda: optax.chain(jaxnorm.clip_by_layer_norm(1.0), _sgd()),
    "optax.clip_by_global_norm": lambda: optax.chain(optax.clip_by_global_norm(1.0), _sgd()),
    "optax.centralize": lambda: optax.chain(optax.centralize(), _sgd()),
    "optax.adaptive_grad_clip": lambda: optax.chain(optax.adaptive_grad_clip(0.01), _sgd()),
    "optax.contrib.muon": _muon,
    "nero": _nero,
    "hyperball": lambda: hyperball(_sgd(), jaxnorm.flax_layout, 0.02),
    "muon+stiefel": lambda: optax.chain(_muon(), jaxnorm.stiefel_projection(tangent=True)),
}


def update_subject(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """From parameters, the optimizer's state and gradients to the next two."""
    optimizer, placement = OPTIMIZERS[spec.method](), placed(spec, devices)
    params = params_of(spec.model)
    shapes = (params, jax.eval_shape(optimizer.init, params), params)

    def update(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def kept(*arguments: Any) -> tuple[Any, Any]:
        return placement.keep(update(*arguments))

    arguments = on(placement, shapes)
    return Subject(kept, arguments, (update, shapes), own_size(arguments[0]), donate=(0, 1))
