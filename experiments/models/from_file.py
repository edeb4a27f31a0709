"""Networks of the user's own, FILE.py:NAME, with their batch normalization or without it."""

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import PyTree

import jaxnorm
from experiments.data.reading import reading
from experiments.errors import UserError, unknown
from experiments.models.group_norm import GroupNorm
from experiments.models.libraries import Wrapped, as_module
from experiments.models.own_code import own_code, place_of
from experiments.models.own_modules import FOLDERS

WANTED = (
    "wanted FILE.py:NAME, a function (rngs, shape, classes) that returns a flax.nnx.Module, a "
    "flax.linen.Module, the result of haiku.transform or an equinox.Module"
)

#: The argument of a user's function that says whether the network keeps its batch normalization.
FLAG = "batch_norm"

#: The primitives of JAX that draw random numbers.
DRAWS = ("random_bits", "threefry2x32", "rng_bit_generator", "rng_uniform")

#: The layers that `jaxnorm.nnx.replace_batch_norm` takes out.
BATCH_NORM = (nnx.BatchNorm, jaxnorm.nnx.BatchNorm, jaxnorm.nnx.PopulationNorm)


@functools.cache
def _executed(path: str) -> Any:
    """Executes a file once, and returns its module."""
    file = Path(path)
    spec: Any = importlib.util.spec_from_file_location(f"network_of_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with reading(path, f"it must run as a Python file; {WANTED}"), own_code(f"{path}:{file.stem}"):
        spec.loader.exec_module(module)
    return module


def load_maker(model: str) -> Callable[..., Any]:
    """Returns the function or class that FILE.py:NAME names.

    Raises:
        UserError: if there is no such file or name, or if the file cannot be executed.
    """
    path, _, name = model.rpartition(":")
    if Path(path).suffix != ".py" or not Path(path).is_file():
        raise UserError(f"--model is {model!r}, and there is no Python file {path!r}; {WANTED}.")
    FOLDERS.use(Path(path).absolute().parent)
    module = _executed(path)
    maker = getattr(module, name, None)
    if not callable(maker):
        defined = [
            each
            for each, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        if not defined:
            raise UserError(f"{path} defines no function or class; {WANTED}.")
        raise unknown(f"function in {path}", name, defined)
    check_takes(model, maker, 3, WANTED)
    return maker


def check_takes(model: str, function: Callable[..., Any], count: int, wanted: str) -> None:
    """Raises UserError for a function of the user's that does not take so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Of compiled code; whoever calls it sees.
        return
    try:
        flag = {FLAG: True} if FLAG in signature.parameters else {}
        signature.bind(*range(count), **flag)
    except TypeError as error:
        code = getattr(inspect.unwrap(function), "__code__", None)
        place = f" at {Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
        name = getattr(function, "__name__", "it")
        raise UserError(f"{model}: {name}{signature}{place}: {error}; {wanted}.") from error


def network_from_file(
    model: str,
    shape: Sequence[int],
    classes: int,
    rngs: nnx.Rngs,
    norm: str | None = None,
    positions: Sequence[int] = (),
) -> nnx.Module:
    """Returns the user's network, with its batch normalization, without it, or with another.

    A function with an argument ``batch_norm`` gets it, and leaves the layers out itself.

    Args:
        model: FILE.py:NAME.
        shape: of one input.
        classes: the number of logits.
        rngs: the random streams of the initial parameters.
        norm: "bn" for the network with its batch normalization, "gn" for group normalization in
            its place, None for neither.
        positions: the sides of a label map; () for one label per row.

    Raises:
        UserError: for a result that is no network, for a network without batch normalization that
            should keep or exchange it, and for logits of another shape than (rows, *positions,
            classes).
    """
    x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    # Scales that start at 1 are to be known as such under jit, too.
    with jax.ensure_compile_time_eval():
        network = _made(model, x, classes, rngs, norm is not None)
        if not callable(network):
            raise UserError(
                f"{model} made a {type(network).__name__} without __call__; wanted a network that "
                "takes rows: def __call__(self, x)."
            )
        if not isinstance(network, Wrapped):  # Networks of other libraries were called already.
            check_takes(model, network.__call__, 1, "wanted a network that takes rows alone")
        network = _with_norm(model, network, x, norm, rngs)
    apply, params, state = jaxnorm.nnx.functionalize(network)
    if not jax.tree.leaves(params):
        raise UserError(
            f"{model} made a network without parameters; wanted layers that are attributes of the "
            "module, such as self.linear = nnx.Linear(...)."
        )
    evaluation = jax.make_jaxpr(functools.partial(apply, train=False), return_shape=True)
    program, (output, _) = evaluation(params, state, x)
    if drawn := draws(program.jaxpr):
        raise UserError(
            f"{model} draws random numbers in evaluation ({drawn}); wanted one result per row "
            "there: leave out deterministic=False, or train, of its dropout, which training sets."
        )
    if getattr(output, "shape", None) != (wanted := (2, *positions, classes)):
        shown = getattr(output, "shape", type(output).__name__)
        raise UserError(
            f"{model} returned {shown} for two rows of shape {tuple(shape)}; wanted logits of "
            f"shape {wanted}."
        )
    if not jnp.issubdtype(output.dtype, jnp.floating):
        raise UserError(
            f"{model} returned logits of type {output.dtype}; wanted floating point numbers, which "
            "have gradients: leave out the cast, or return what is before argmax."
        )
    return network


def draws(program: Any) -> str:
    """Returns the primitive by which a jaxpr draws random numbers; empty if it draws none."""
    return next((name for name in primitives(program) if name in DRAWS), "")


def primitives(program: Any) -> Iterator[str]:
    """Yields the names of the primitives of a jaxpr and of those inside it."""
    for equation in program.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                yield from primitives(getattr(inner, "jaxpr", inner))


def is_jaxpr(value: Any) -> bool:
    """Returns True for a program of JAX, closed or open."""
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _made(model: str, x: Any, classes: int, rngs: nnx.Rngs, batch_norm: bool) -> nnx.Module:
    """Returns the network of the user's function, one of another library as a module."""
    maker = load_maker(model)
    keeps = {FLAG: batch_norm} if FLAG in inspect.signature(maker).parameters else {}
    try:
        network = maker(rngs, x.shape[1:], classes, **keeps)
    except Exception as error:
        if place_of(error.__traceback__, Path(model.rpartition(":")[0])):
            raise
        # It comes from an installed package, of which the file imports the name.
        raise UserError(
            f"{model}(rngs, shape, classes) raised {type(error).__name__}: {error}; {WANTED}."
        ) from error
    module = network if isinstance(network, nnx.Module) else as_module(model, network, x, rngs)
    if module is None:
        raise UserError(f"{model} returned a {type(network).__name__}; {WANTED}.")
    return module


def _with_norm(
    model: str, network: nnx.Module, x: Any, norm: str | None, rngs: nnx.Rngs
) -> nnx.Module:
    """Returns a network with its batch normalization kept, exchanged or taken out."""
    is_wrapped = isinstance(network, Wrapped)
    has_norm = network.has_statistics if isinstance(network, Wrapped) else _has_layers(network)
    if norm is not None and not has_norm:
        raise UserError(
            f"{model} has no BatchNorm layer, so that {norm} would be the same as none; leave "
            f"{norm} out of --methods, or write the network with its BatchNorm layers (in Linen "
            f"and Haiku where the function's argument {FLAG} is True)."
        )
    if norm == "gn" and is_wrapped:
        raise UserError(
            f"{model} has BatchNorm layers, and gn can take the place of those of flax.nnx alone; "
            "leave gn out of --methods, or compare a network that is written with its GroupNorm "
            "layers, under none."
        )
    if norm is None and has_norm and is_wrapped:
        raise UserError(
            f"{model} keeps statistics, as BatchNorm does, and only that of flax.nnx can be taken "
            f"out; wanted a function (rngs, shape, classes, {FLAG}) that leaves it out where "
            f"{FLAG} is False: every method without bn gets that."
        )
    if norm == "gn":
        exchanged = functools.partial(group_norm_like, rngs=rngs)
        return jaxnorm.nnx.replace_batch_norm(network, replacement=exchanged)
    if has_norm and norm is None:
        return jaxnorm.nnx.replace_batch_norm(network, x)
    return network


def group_norm_like(layer: Any, rngs: nnx.Rngs) -> nnx.Module:
    """Returns group normalization with the initial scale and bias of a BatchNorm layer."""
    norm: Any = GroupNorm(layer.num_features, axis=getattr(layer, "axis", -1), rngs=rngs)
    for name in ("scale", "bias"):
        if getattr(layer, name, None) is not None:
            getattr(norm, name).set_value(getattr(layer, name).get_value())
    return norm


def _has_layers(network: nnx.Module) -> bool:
    return any(isinstance(layer, BATCH_NORM) for _, layer in nnx.iter_modules(network))


def classifier(model: str, net: jaxnorm.Reading) -> str:
    """Returns the path of the classifier: the last kernel in the order of execution.

    Args:
        model: FILE.py:NAME.
        net: the network, read.

    Raises:
        UserError: if that kernel has another number of units than the logits.
    """
    layers: dict[str, Any] = {}

    def run(params: PyTree, *inputs: Any) -> Any:
        output, found = jaxnorm.collect_preactivations(net, params, *inputs)
        layers.update(found)
        return output

    output = jax.eval_shape(run, net.params, *net.inputs)
    path, units = list(layers)[-1], list(layers.values())[-1].shape[-1]
    if units != output.shape[-1]:
        raise UserError(
            f"the last kernel of {model}, {path}, has {units} units for {output.shape[-1]} "
            "classes; wanted one unit per class there: methods leave the classifier's kernel free."
        )
    return path
