"""Layers that a normalization directly follows, from the model's program."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from jaxnorm._paths import Path
from jaxnorm._trace.interpret import MARK, Program, is_flag, trace
from jaxnorm._trace.queries import MarkedLayer, marked_inputs, marked_layers
from jaxnorm.nnx._batch_norm import BatchNorm, PopulationNorm
from jaxnorm.nnx._functionalize import with_flags
from jaxnorm.nnx._modules import ModulePath, clone, exchange, set_bias

#: Calls that normalize and do nothing else.
_CALLS = [kind.__call__ for kind in (nnx.BatchNorm, BatchNorm, PopulationNorm)]
#: End of the mark of a call that no kernel can take the place of.
_OTHER = "_other"
_LAYERS = (nnx.Linear, nnx.Conv, nnx.ConvTranspose)


def has_own_call(normalization: Any) -> bool:
    """True for a subclass that computes something else, an activation after it for example."""
    return type(normalization).__call__ not in _CALLS


class Marked(NamedTuple):
    """Program of a model with a mark in the place of each normalization.

    Attributes:
        program: the program.
        names: the path of each normalization by the name of its mark.
        modules: the modules of the model by path.
    """

    program: Program
    names: dict[str, ModulePath]
    modules: dict[ModulePath, Any]


def traced_with_marks(
    model: nnx.Module,
    normalizations: list[ModulePath],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    train: bool,
    running: bool = False,
) -> Marked:
    """Traces a model with marks.

    Args:
        model: the model.
        normalizations: the paths of its normalizations.
        inputs: arrays or shapes with which the model is called.
        keywords: its keyword arguments.
        train: True to trace the model in training, False in evaluation.
        running: True if running statistics matter: a normalization that is called for the
            statistics of the batch then follows no layer.
    """
    marked, names = _marked(model, normalizations, running)
    kernels = [
        Path(map(str, (*path, "kernel")))
        for path, layer in nnx.iter_modules(marked)
        if isinstance(layer, _LAYERS)
    ]
    marked.train() if train else marked.eval()
    graph, state = nnx.split(marked)
    inputs, options = with_flags(marked, inputs, keywords, train, override=True)
    flags = {name: value for name, value in options.items() if is_flag(value)}
    arrays = {name: value for name, value in options.items() if name not in flags}

    def run(values: Any, arrays: Any, *inputs: Any) -> Any:
        bound = nnx.merge(graph, values)
        output = bound(*inputs, **arrays, **flags)
        # Values that the model stores count as outputs: they read their operands too.
        return output, nnx.to_pure_dict(nnx.state(bound, nnx.Not(nnx.Param)))

    program = trace(run, nnx.to_pure_dict(state), (arrays, *inputs), kernels)
    return Marked(program, names, dict(nnx.iter_modules(model)))


def followed_layers(marked: Marked) -> dict[ModulePath, MarkedLayer]:
    """Returns the layer of each normalization that directly follows a Linear, Conv, ConvTranspose.

    Directly: its input is the layer's output, bias included, with the units in their order on the
    last axis; the layer and the normalization are called once, or once per turn of a scan over
    stacks of both, and nothing else reads the output, the kernel or the bias. A normalization of a
    subclass with its own call follows no layer.
    """
    names, modules = marked.names, marked.modules
    layers = {Path(map(str, (*path, "kernel"))): module for path, module in modules.items()}
    return {
        names[name]: layer
        for name, layer in marked_layers(marked.program).items()
        if name in names
        and layer.bias == layer.kernel.beside("bias")
        and _are_alike(layers[layer.kernel], modules[names[name]])
    }


def normalized_inputs(marked: Marked) -> set[ModulePath]:
    """Returns the normalizations that read the model's inputs, in any form without a kernel."""
    return {marked.names[x.removesuffix(_OTHER)] for x in marked_inputs(marked.program)}


def _are_alike(layer: Any, normalization: Any) -> bool:
    """Returns True if a normalization has values for each unit of each layer of a stack."""
    variables = (layer.bias, *(getattr(normalization, x) for x in ("mean", "var", "scale", "bias")))
    shape = (*stack_sizes(layer), layer.out_features)
    return all(variable is None or variable.shape == shape for variable in variables)


def _marked(
    model: nnx.Module, normalizations: list[ModulePath], running: bool
) -> tuple[nnx.Module, dict[str, ModulePath]]:
    """Returns a copy with marks for normalizations and a bias in each layer; paths by mark."""
    copy = clone(model)
    modules: dict[ModulePath, Any] = dict(nnx.iter_modules(copy))
    for layer in modules.values():
        if isinstance(layer, _LAYERS) and layer.bias is None:
            # The trace shows whether the layer would add it, or is used by its kernel alone.
            shape = (*stack_sizes(layer), layer.out_features)
            set_bias(layer, jnp.zeros(shape, layer.param_dtype))
    names = {
        str(number): path
        for number, path in enumerate(normalizations)
        if not has_own_call(modules[path])
    }
    marks: dict[int, nnx.Module] = {
        id(modules[path]): _Mark(name, modules[path].axis, running) for name, path in names.items()
    }
    return exchange(copy, marks), names


def stack_sizes(layer: Any) -> tuple[int, ...]:
    """Returns the sizes of the axes that `nnx.vmap` has put in front of a kernel's own."""
    shape = layer.kernel.shape
    own = 2 if isinstance(layer, nnx.Linear) else 2 + len(layer.kernel_size)
    return tuple(shape[: len(shape) - own])


class _Mark(nnx.Module):
    """Identity function in the place of a normalization, with its name in the program."""

    def __init__(self, name: str, axis: Any, running: bool):
        self.name, self.axis, self.running = name, axis, running

    def __call__(
        self, x: Any, use_running_average: bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        del args, kwargs

        is_last = self.axis in (-1, x.ndim - 1)
        by_batch = self.running and use_running_average is False
        return checkpoint_name(x, MARK + self.name + ("" if is_last and not by_batch else _OTHER))
