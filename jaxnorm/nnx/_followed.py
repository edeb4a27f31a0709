"""Which normalization follows which kernel directly, read off the model's jaxpr."""

from collections import Counter
from typing import Any, NamedTuple

import jax
from flax import nnx

from jaxnorm._kernel_calls import is_flag
from jaxnorm.nnx._edit import Path, clone, replaced
from jaxnorm.nnx._flags import with_flags
from jaxnorm.nnx._program import Equation, Program, trace

_MARK = "jaxnorm_normalization_"
_PRODUCTS = ("dot_general", "conv_general_dilated")
_WEIGHTS = ("kernel", "bias")
_OUTPUTS = ("output", "biased")
_VIEWS = ("convert_element_type", "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "copy")


class _Origin(NamedTuple):
    """What a variable holds: a layer's ``kernel``, its ``bias``, or its ``output``.

    ``biased`` is the output with the bias added.
    """

    kind: str
    layer: Path


class _Mark(nnx.Module):
    """Stands for a normalization, and leaves its name in the jaxpr."""

    def __init__(self, index: int, axis: Any):
        self.index = index
        self.axis = axis

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        if self.axis not in (-1, x.ndim - 1):  # not the units' axis of any layer
            return jax.lax.optimization_barrier(x)

        def identity(x: Any) -> Any:
            return x

        identity.__name__ = f"{_MARK}{self.index}"
        return jax.jit(identity)(x)


def followed_layers(
    model: nnx.Module,
    normalizations: list[Path],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
) -> dict[Path, Path]:
    """For each normalization that directly follows a kernel, the path of that kernel's layer.

    Directly: its input is the output of a Linear or Conv, bias included, that is called once and
    whose output nothing else reads; nothing else reads the kernel or the bias; and the
    normalization is along the units and is called once. Only then can the one be written into the
    other.
    """
    program, origins = _traced(model, normalizations, inputs, keywords)
    uses = Counter(variable for equation in program.equations for variable in equation.inputs)
    uses.update(program.outputs)
    calls: Counter[Path] = Counter()
    marks: Counter[str] = Counter()
    found: dict[str, Path] = {}
    shared: set[Path] = set()
    for equation in program.equations:
        origin = _result(equation, origins, uses)
        if equation.name.startswith(_MARK):
            marks[equation.name] += 1
            if origin is not None:
                found[equation.name] = origin.layer
        elif origin is not None:
            origins[equation.outputs[0]] = origin
            calls[origin.layer] += equation.name in _PRODUCTS
        shared.update(_read_elsewhere(equation, origins, origin))
    shared.update(o.layer for v in program.outputs if (o := origins.get(v)) and o.kind in _WEIGHTS)
    return {
        normalizations[int(name.removeprefix(_MARK))]: layer
        for name, layer in found.items()
        if marks[name] == 1 and calls[layer] == 1 and layer not in shared
    }


def _read_elsewhere(
    equation: Equation, origins: dict[int, _Origin], result: _Origin | None
) -> set[Path]:
    """The layers whose kernel or bias this equation makes something else of."""
    read = [origins.get(variable) for variable in equation.inputs]
    return {
        o.layer
        for o in read
        if o and o.kind in _WEIGHTS and (not result or result.layer != o.layer)
    }


def _traced(
    model: nnx.Module,
    normalizations: list[Path],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
) -> tuple[Program, dict[int, _Origin]]:
    """The model's primitives with marked normalizations, and which variables are its kernels."""
    marked = clone(model)
    modules: dict[Path, Any] = dict(nnx.iter_modules(marked))
    marks: dict[int, nnx.Module] = {
        id(modules[path]): _Mark(i, modules[path].axis) for i, path in enumerate(normalizations)
    }
    marked = replaced(marked, marks)
    marked.eval()
    graph, state = nnx.split(marked)
    values = nnx.to_pure_dict(state)
    leaves, _ = jax.tree_util.tree_flatten_with_path(values)
    names = [tuple(key.key for key in path) for path, _ in leaves]

    options = with_flags(marked, inputs, keywords, train=False)
    flags = {name: value for name, value in options.items() if is_flag(value)}
    arrays = {name: value for name, value in options.items() if name not in flags}

    def run(values: Any, arrays: Any, *inputs: Any) -> Any:
        return nnx.merge(graph, values)(*inputs, **arrays, **flags)

    program = trace(run, values, arrays, *inputs, keep=_MARK)
    layers = {
        path for path, module in modules.items() if isinstance(module, (nnx.Linear, nnx.Conv))
    }
    origins = {
        variable: _Origin(str(name[-1]), tuple(name[:-1]))
        for variable, name in zip(program.inputs, names, strict=False)
        if tuple(name[:-1]) in layers and name[-1] in ("kernel", "bias")
    }
    return program, origins


def _result(equation: Equation, origins: dict[int, _Origin], uses: Counter[int]) -> _Origin | None:
    """What the equation's result is, if it is still a kernel, a bias, or a layer's only output."""
    found = [origins.get(variable) for variable in equation.inputs]
    kinds = [origin and origin.kind for origin in found]
    first = next((origin for origin in found if origin is not None), None)
    if first is None:
        return None
    if equation.name in _PRODUCTS and kinds.count("kernel") == 1 and "bias" not in kinds:
        return _Origin("output", next(o.layer for o in found if o and o.kind == "kernel"))
    read_once = all(
        uses[variable] == 1
        for variable, kind in zip(equation.inputs, kinds, strict=True)
        if kind in _OUTPUTS
    )
    if not read_once:
        return None
    same_layer = len({origin.layer for origin in found if origin is not None}) == 1
    if equation.name == "add" and sorted(map(str, kinds)) == ["bias", "output"] and same_layer:
        return _Origin("biased", first.layer)
    if equation.name in _VIEWS and kinds[0] in _WEIGHTS:
        return first
    if kinds[0] in _OUTPUTS and equation.name.startswith((_MARK, "convert_element_type")):
        return first
    if kinds[0] in _OUTPUTS and equation.name == "reshape" and equation.keeps_last_axis:
        return first
    return None
