"""Networks of the user's own, FILE.py:NAME, with their batch normalization or without it."""

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import PyTree

import jaxnorm
from experiments.config import UserError, unknown
from experiments.data.reading import reading
from experiments.models.libraries import Wrapped, as_module

WANTED = (
    "wanted FILE.py:NAME, a function (rngs, shape, classes) that returns a flax.nnx.Module, a "
    "flax.linen.Module, the result of haiku.transform or an equinox.Module"
)

#: The argument of a user's function that says whether the network keeps its batch normalization.
FLAG = "batch_norm"

#: The layers that `jaxnorm.nnx.replace_batch_norm` takes out.
BATCH_NORM = (nnx.BatchNorm, jaxnorm.nnx.BatchNorm, jaxnorm.nnx.PopulationNorm)


def is_from_file(model: str) -> bool:
    """Returns True for FILE.py:NAME, a network of the user's own."""
    return ":" in model


@functools.cache
def _executed(path: str) -> tuple[Any, Sequence[Path]]:
    """Executes a file once; returns its module, and the files that the module is made of.

    These are the file, and the modules beside it that it imports.
    """
    file, before = Path(path), set(sys.modules)
    spec: Any = importlib.util.spec_from_file_location(f"network_of_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # for the modules beside the file
    with reading(path, f"it must run as a Python file; {WANTED}"):
        spec.loader.exec_module(module)
    imported = [sys.modules[each] for each in sys.modules.keys() - before]
    places = [getattr(each, "__file__", None) for each in imported]
    files = {Path(place).resolve() for place in places if place and "site-packages" not in place}
    beside = {each for each in files if each.is_relative_to(file.parent.resolve())}
    return module, sorted(beside | {file.resolve()})


def load_maker(model: str) -> Callable[..., Any]:
    """Returns the function or class that FILE.py:NAME names.

    Raises:
        UserError: if there is no such file or name, or if the file cannot be executed.
    """
    path, _, name = model.rpartition(":")
    if Path(path).suffix != ".py" or not Path(path).is_file():
        raise UserError(f"--model is {model!r}, and there is no Python file {path!r}; {WANTED}.")
    module, _ = _executed(path)
    maker = getattr(module, name, None)
    if not callable(maker):
        defined = [
            each
            for each, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        raise unknown(f"function in {path}", name, defined)
    return maker


def source_of(model: str) -> bytes:
    """Returns the content of the file of FILE.py:NAME, and of the modules beside it."""
    load_maker(model)
    _, files = _executed(model.rpartition(":")[0])
    return b"".join(file.read_bytes() for file in files)


def network_from_file(
    model: str,
    shape: Sequence[int],
    classes: int,
    rngs: nnx.Rngs,
    batch_norm: bool,
    positions: Sequence[int] = (),
) -> nnx.Module:
    """Returns the user's network, with its batch normalization or with it taken out.

    A function with an argument ``batch_norm`` gets it, and takes the layers out itself.

    Args:
        model: FILE.py:NAME.
        shape: of one input.
        classes: the number of logits.
        rngs: the random streams of the initial parameters.
        batch_norm: if True, the network keeps its batch normalization.
        positions: the sides of a label map; () for one label per row.

    Raises:
        UserError: for a result that is no network, for a network without batch normalization
            that should keep it, and for logits of another shape than (rows, *positions, classes).
    """
    x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    # Scales that start at 1 are to be known as such under jit, too.
    with jax.ensure_compile_time_eval():
        network = _made(model, x, classes, rngs, batch_norm)
        has_norm = _has_batch_norm(model, network)
        if batch_norm and not has_norm:
            raise UserError(
                f"{model} has no BatchNorm layer, so that bn would be the same as none; leave bn "
                "out of --methods, or write the network with its BatchNorm layers (in Linen and "
                f"Haiku where the function's argument {FLAG} is True)."
            )
        if has_norm and not batch_norm and isinstance(network, Wrapped):
            raise UserError(
                f"{model} keeps statistics, as BatchNorm does, and only that of flax.nnx can be "
                f"taken out; wanted a function (rngs, shape, classes, {FLAG}) that leaves it out "
                f"where {FLAG} is False: every method without bn gets that."
            )
        if has_norm and not batch_norm:
            network = jaxnorm.nnx.replace_batch_norm(network, x)
    apply, params, state = jaxnorm.nnx.functionalize(network)
    output, _ = jax.eval_shape(functools.partial(apply, train=False), params, state, x)
    if getattr(output, "shape", None) != (wanted := (2, *positions, classes)):
        shown = getattr(output, "shape", type(output).__name__)
        raise UserError(
            f"{model} returned {shown} for two rows of shape {tuple(shape)}; wanted logits of "
            f"shape {wanted}."
        )
    return network


def _made(model: str, x: Any, classes: int, rngs: nnx.Rngs, batch_norm: bool) -> nnx.Module:
    """Returns the network of the user's function, one of another library as a module."""
    maker = load_maker(model)
    keeps = {FLAG: batch_norm} if FLAG in inspect.signature(maker).parameters else {}
    network = maker(rngs, x.shape[1:], classes, **keeps)
    module = network if isinstance(network, nnx.Module) else as_module(model, network, x, rngs)
    if module is None:
        raise UserError(f"{model} returned a {type(network).__name__}; {WANTED}.")
    return module


def _has_batch_norm(model: str, network: nnx.Module) -> bool:
    if isinstance(network, Wrapped):
        return network.has_statistics
    return any(isinstance(layer, BATCH_NORM) for _, layer in nnx.iter_modules(network))


def classifier(
    model: str, logits: Callable[..., Any], params: PyTree, *inputs: Any, layout: jaxnorm.Layout
) -> str:
    """Returns the path of the classifier: the last kernel in the order of execution.

    Args:
        model: FILE.py:NAME.
        logits: ``logits(params, *inputs)``, the network.
        params: its parameters, or their shapes.
        *inputs: the other arguments, or their shapes.
        layout: all kernels.

    Raises:
        UserError: if that kernel has another number of units than the logits.
    """
    layers: dict[str, Any] = {}

    def run(params: PyTree, *inputs: Any) -> Any:
        output, found = jaxnorm.collect_preactivations(logits, params, *inputs, layout=layout)
        layers.update(found)
        return output

    output = jax.eval_shape(run, params, *inputs)
    path, units = list(layers)[-1], list(layers.values())[-1].shape[-1]
    if units != output.shape[-1]:
        raise UserError(
            f"the last kernel of {model}, {path}, has {units} units for {output.shape[-1]} "
            "classes; wanted one unit per class there: methods leave the classifier's kernel free."
        )
    return path
