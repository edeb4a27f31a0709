"""Which normalization follows which kernel directly, read off the model's program."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxnorm._trace import MARK, is_flag, marked_layers, trace
from jaxnorm._trees import _paths
from jaxnorm._trees._node import Axes
from jaxnorm.nnx._edit import Path, clone, replaced, set_bias
from jaxnorm.nnx._flags import with_flags

_LAYERS = (nnx.Linear, nnx.Conv, nnx.ConvTranspose)


class Followed(NamedTuple):
    """A layer that a normalization follows: its path, and its kernel's fan-in axes."""

    layer: Path
    fan_in: Axes


class _Mark(nnx.Module):
    """Stands for a normalization, and leaves its name in the program."""

    def __init__(self, name: str, axis: Any, running: bool):
        self.name = name
        self.axis = axis
        self.running = running

    def __call__(
        self, x: Any, use_running_average: bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        del args, kwargs

        def identity(x: Any) -> Any:
            return x

        # Along another axis it stands for no normalization of any layer's units, and told to take
        # the batch's statistics for none by running ones.
        known = self.axis in (-1, x.ndim - 1)
        known = known and not (self.running and use_running_average is False)
        identity.__name__ = MARK + (self.name if known else "")
        return jax.jit(identity)(x)


def followed_layers(
    model: nnx.Module,
    normalizations: list[Path],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    modes: Iterable[bool] = (False,),
    running: bool = False,
) -> dict[Path, Followed]:
    """For each normalization that directly follows a kernel, the layer of that kernel.

    Directly: its input is the output of a Linear, Conv or ConvTranspose, its bias included, that is
    called once and whose output nothing else reads; nothing else reads the kernel or the bias; and
    the normalization is along the units and is called once. Only then can the one be written into
    the other. It must be so in all ``modes``: in evaluation (False), in training (True). Where the
    ``running`` statistics matter, a call that asks for the batch's is none that can be written; nor
    is that of someone's subclass that computes something of its own.
    """
    modules = dict(nnx.iter_modules(model))
    normalizations = [path for path in normalizations if not has_own_call(modules[path])]
    found: list[dict[Path, Followed]] = []
    for train in modes:
        try:
            found.append(_in_mode(model, normalizations, inputs, keywords, train, running))
        except Exception as error:
            if train:
                error.add_note(
                    "The model is read in training too, to see what only training does. Pass by "
                    "keyword what it needs there, as rngs=nnx.Rngs(0), or leave out the example "
                    "inputs: then every BatchNorm becomes a ScaleAndBias."
                )
            raise
    return dict(set(found[0].items()).intersection(*(other.items() for other in found[1:])))


def has_own_call(normalization: Any) -> bool:
    """Whether it is of a subclass that computes something else, an activation after it say."""
    return type(normalization).__call__.__module__.partition(".")[0] not in ("flax", "jaxnorm")


def _in_mode(
    model: nnx.Module,
    normalizations: list[Path],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    train: bool,
    running: bool,
) -> dict[Path, Followed]:
    marked, layers = _marked(model, normalizations, running)
    marked.train() if train else marked.eval()
    graph, state = nnx.split(marked)
    inputs, options = with_flags(marked, inputs, keywords, train, override=True)
    flags = {name: value for name, value in options.items() if is_flag(value)}
    arrays = {name: value for name, value in options.items() if name not in flags}

    def run(values: Any, arrays: Any, *inputs: Any) -> Any:
        called = nnx.merge(graph, values)
        output = called(*inputs, **arrays, **flags)
        return output, nnx.to_pure_dict(nnx.state(called, nnx.Not(nnx.Param)))

    kernels = [_paths.Path((*layer, "kernel")) for layer in layers]
    program = trace(run, nnx.to_pure_dict(state), (arrays, *inputs), kernels)
    return {
        normalizations[int(name)]: Followed(layers[layer.kernel[:-1]], layer.fan_in)
        for name, layer in marked_layers(program).items()
        if name and layer.bias == layer.kernel.beside("bias")
    }


def _marked(
    model: nnx.Module, normalizations: list[Path], running: bool
) -> tuple[nnx.Module, dict[tuple[str, ...], Path]]:
    """The model with marks for normalizations and a bias everywhere; its layers by their path."""
    copy = clone(model)
    modules: dict[Path, Any] = dict(nnx.iter_modules(copy))
    layers = {path: module for path, module in modules.items() if isinstance(module, _LAYERS)}
    for layer in layers.values():
        if layer.bias is None:
            # Whether it would be added is seen: the layer may be used by its kernel alone.
            set_bias(layer, jnp.zeros(layer.out_features, layer.param_dtype))
    marks: dict[int, nnx.Module] = {
        id(modules[path]): _Mark(str(i), modules[path].axis, running)
        for i, path in enumerate(normalizations)
    }
    return replaced(copy, marks), {tuple(map(str, path)): path for path in layers}
