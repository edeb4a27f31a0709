"""Programs from raw parameters to weights, with the gradient's pull-back: ours and others'."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import jaxnorm
from experiments.bench.compiled.kernels import params_of
from experiments.bench.compiled.sharding import on, own_size, placed
from experiments.bench.compiled.spec import Spec, Subject
from experiments.errors import UserError

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


def effective_subject(spec: Spec, devices: Sequence[jax.Device]) -> Subject:
    """Weights and the pull-back of their gradient: at least 16 bytes per parameter."""
    # Without biases. The values do not enter the program, except for vectors of one value per unit.
    kernels = {n: {"kernel": jnp.ones(k["kernel"].shape)} for n, k in params_of(spec.model).items()}
    weights, raw = MAKERS[spec.method](kernels)

    def there_and_back(raw: Any, gradient: Any) -> tuple[Any, Any]:
        value, pull_back = jax.vjp(weights, raw)
        return value, pull_back(gradient)

    shapes = jax.eval_shape(lambda: (raw, weights(raw)))
    placement = placed(spec, devices)
    size = own_size(on(placement, jax.eval_shape(lambda: kernels)))
    return Subject(there_and_back, on(placement, shapes), (there_and_back, shapes), size)
