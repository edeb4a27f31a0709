"""Batch normalization taken out of a model, or written into its kernels."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxnorm._fold import fold_into_kernel
from jaxnorm._numerics import promote
from jaxnorm._paths import Path, named_entries
from jaxnorm._trace.queries import MarkedLayer
from jaxnorm.nnx._batch_norm import BatchNorm, PopulationNorm
from jaxnorm.nnx._followed import (
    Marked,
    followed_layers,
    has_own_call,
    normalized_inputs,
    stack_sizes,
    traced_with_marks,
)
from jaxnorm.nnx._lost import warn_of_lost_statistics, warn_of_raw_inputs
from jaxnorm.nnx._modules import ModulePath, check_module, clone, exchange, is_all, set_bias
from jaxnorm.nnx._scale_and_bias import Identity, ScaleAndBias

#: The layers that are taken out; `Standardization` is a `BatchNorm`.
Normalization = nnx.BatchNorm | BatchNorm | PopulationNorm


class FoldedModel(NamedTuple):
    """Model for inference.

    Attributes:
        model: the new model, in evaluation mode.
        remaining: the paths of the BatchNorm layers that are still in it, because they do not
            directly follow a kernel: in front of one (pre-activation residual nets), after a sum,
            after a permutation of the units (channel shuffle), or after a layer whose output has
            another reader; because layers of a scan share them, or their stack is not along the
            first axis; because they are called with ``use_running_average=False`` in evaluation; or
            because they are of a subclass with its own call.
    """

    model: nnx.Module
    remaining: list[ModulePath]


def _scale_and_bias(batch_norm: Normalization) -> ScaleAndBias:
    """Returns the affine part of a batch normalization layer, with the layer's own variables.

    Frozen variables (of a subclass of ``nnx.Param``) stay frozen, and variables that several layers
    share stay shared. Raises ValueError for several feature axes, and for a call of its own.
    """
    if has_own_call(batch_norm) or not isinstance(batch_norm.axis, int):
        raise ValueError(
            f"{type(batch_norm).__name__} has its own __call__, or several axes: its axis is "
            f"{batch_norm.axis}. Give replace_batch_norm a replacement= that makes a layer for it."
        )
    layer = ScaleAndBias(batch_norm.num_features, axis=batch_norm.axis, dtype=batch_norm.dtype)
    layer.channel_scale, layer.bias = batch_norm.scale, batch_norm.bias
    return layer


def replace_batch_norm(
    model: nnx.Module,
    *inputs: Any,
    replacement: Callable[[Normalization], nnx.Module] | None = None,
    **keywords: Any,
) -> nnx.Module:
    """Copy of the model in which every BatchNorm layer is a scale and a bias.

    The layers are those of Flax and of this library: all variants of `BatchNorm`,
    `Standardization` and `PopulationNorm`. Of a layer without scale and bias nothing is left.

    With example ``inputs`` the model is traced. Where a BatchNorm directly follows a Linear, a Conv
    or a ConvTranspose (nothing else reads that layer's output, in training or in evaluation, and
    the units keep their order), nothing is left of it either: its bias becomes the layer's, and its
    scale is the kernel's own, which ``reparametrize(params, Scaled)`` makes a parameter. That costs
    O(parameters) instead of O(activations) per step. Elsewhere (in front of a kernel, as in
    pre-activation residual nets, after a dropout, with an initial scale other than 1, or with a
    shared one) a `ScaleAndBias` layer takes its place, as everywhere without ``inputs``.

    An existing network becomes trainable without normalization in three lines:
    ``model = replace_batch_norm(model, x)``, ``apply, params, state = functionalize(model)``,
    ``params = project(reparametrize(params, Scaled))``, and `sphere_projection` last in its chain.
    A trained network loses its running statistics with the layers: `fold_batch_norm` keeps them.

    Args:
        model: any NNX model; it is not changed. In an abstract one (of ``nnx.eval_shape``), and
            under a trace, no scale is known to be 1, so that a layer keeps each.
        *inputs: the model's inputs, arrays or ``jax.ShapeDtypeStruct``.
        replacement: makes the layer that takes a BatchNorm's place, ``batch_norm -> module``, of
            every BatchNorm; None for a scale and a bias, where one is needed.
        **keywords: the model's keyword arguments. An argument that tells whether the model trains
            (``train``, ``training``, ``is_training``, ``deterministic``) may be left out; the model
            is traced in both modes whatever its value.

    Returns:
        The new model, without running statistics. Layers in the place of a BatchNorm return the
        BatchNorm's ``dtype``, or the type of their input; the type of the parameters (Flax's
        float32 ones meeting bfloat16) does not count.

    Raises:
        ValueError: if the model has no BatchNorm layer, or one of several axes or of a subclass
            with its own call (without ``replacement``).
        TypeError: if the model is another library's.

    Warns:
        UserWarning: if running statistics are not mean 0 and variance 1; and, with ``inputs``, if a
            BatchNorm reads the model's inputs, in any form that no parameter has a part in, so that
            nothing standardizes the data any more. A layer that ``replacement`` returns as it is
            stays in the model.

    Call it outside of jit, pmap and shard_map; nothing is computed but new zeros, and arrays stay
    where they are.

    Example:
        >>> rngs = nnx.Rngs(0)
        >>> conv = nnx.Conv(3, 8, (3, 3), use_bias=False, rngs=rngs)
        >>> model = nnx.Sequential(conv, nnx.BatchNorm(8, rngs=rngs), nnx.relu)
        >>> plain = replace_batch_norm(model, jnp.ones((1, 6, 6, 3)))
        >>> [type(layer).__name__ for layer in plain.layers[:2]]
        ['Conv', 'Identity']

    Source: Ikami et al. 2021, section 4.1.1: all BN layers are replaced by Eq. 6.
    """
    copy = clone(model)
    norms = _batch_norms(copy)
    followed: dict[ModulePath, MarkedLayer] = {}
    of_inputs: set[ModulePath] = set()
    if inputs or keywords:
        evaluated = traced_with_marks(copy, list(norms), inputs, keywords, train=False)
        of_inputs = normalized_inputs(evaluated)
        if replacement is None:
            followed = _carried_by_kernels(copy, norms, evaluated, inputs, keywords)
    modules = _modules_by_kernel(copy)
    for path, layer in followed.items():
        _add_bias(modules[layer.kernel], norms[path])
    make = replacement or _scale_and_bias
    replacements = {
        id(norm): Identity(dtype=norm.dtype) if path in followed else make(norm)
        for path, norm in norms.items()
    }
    lost = {path: norm for path, norm in norms.items() if replacements[id(norm)] is not norm}
    warn_of_lost_statistics(lost)
    warn_of_raw_inputs([path for path in lost if path in of_inputs])
    return exchange(copy, replacements)


def fold_batch_norm(model: nnx.Module, *inputs: Any, **keywords: Any) -> FoldedModel:
    """Copy of the model with every BatchNorm that follows a kernel written into that kernel.

    The result computes what the model computes in evaluation, with the plain network's FLOPs and
    bytes. A BatchNorm's own ``dtype`` is kept; the type of the parameters (Flax's float32 ones
    meeting bfloat16) does not count. The layers are those of Flax and of this library: all variants
    of `BatchNorm`, `Standardization` and `PopulationNorm`. Those that cannot be written into a
    kernel stay, and are named.

    Args:
        model: any NNX model with its running statistics; it is not changed.
        *inputs: the model's inputs, arrays or ``jax.ShapeDtypeStruct``.
        **keywords: the model's keyword arguments. An argument that tells whether the model trains
            (``train``, ``training``, ``is_training``, ``deterministic``) may be left out; the model
            is traced in evaluation whatever its value.

    Returns:
        ``(model, remaining)``.

    Raises:
        ValueError: if the model has no BatchNorm layer, if it is abstract, or if a folded kernel
            overflows its type, as of float16.
        TypeError: if the model is another library's.

    Call it outside of jit, pmap and shard_map; the arrays of other layers stay where they are.

    Example:
        >>> rngs = nnx.Rngs(0)
        >>> model = nnx.Sequential(nnx.Linear(3, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs))
        >>> folded, remaining = fold_batch_norm(model, jnp.ones((1, 3)))
        >>> type(folded.layers[1]).__name__, remaining
        ('Identity', [])
    """
    copy = clone(model)
    norms = _batch_norms(copy)
    _check_has_values(copy)
    marks = traced_with_marks(copy, list(norms), inputs, keywords, train=False, running=True)
    followed = followed_layers(marks)
    modules = _modules_by_kernel(copy)
    for path, layer in followed.items():
        _fold_into(modules[layer.kernel], norms[path], layer)
    copy = exchange(copy, {id(norms[path]): Identity(dtype=norms[path].dtype) for path in followed})
    copy.eval()
    return FoldedModel(copy, [path for path in norms if path not in followed])


def _batch_norms(model: nnx.Module) -> dict[ModulePath, Any]:
    """Returns the BatchNorm layers by path. Raises ValueError if there are none."""
    norms = {
        path: module
        for path, module in nnx.iter_modules(model)
        if isinstance(module, Normalization)
    }
    if not norms:
        check_module(model)
        raise ValueError(
            f"{type(model).__name__} has no BatchNorm layer, Flax's or this library's, so there is "
            "nothing to take out."
        )
    return norms


def _check_has_values(model: nnx.Module) -> None:
    """Raises ValueError for an abstract model."""
    entries = named_entries(nnx.to_pure_dict(nnx.state(model)))
    abstract = [path for path, x in entries if isinstance(x, jax.ShapeDtypeStruct)]
    if abstract:
        raise ValueError(
            f"{len(abstract)} variables of the model, {abstract[0]!r} first, are shapes without "
            "values, as nnx.eval_shape makes them; wanted a model with its values, of which "
            "fold_batch_norm computes new kernels. Restore the checkpoint first, and fold then."
        )


def _carried_by_kernels(
    model: nnx.Module,
    norms: dict[ModulePath, Any],
    evaluated: Marked,
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
) -> dict[ModulePath, MarkedLayer]:
    """Returns the layers whose kernels can carry the scale of the normalization that follows.

    The normalization follows in training and in evaluation; its scale is known to be 1, and no
    other layer has its scale or bias.
    """
    try:
        trained = traced_with_marks(model, list(norms), inputs, keywords, train=True)
    except Exception as error:
        error.add_note(
            "The model is traced in training too, because only training may read a layer's output. "
            "Pass by keyword what it needs there, as rngs=nnx.Rngs(0), or leave out the example "
            "inputs: then every BatchNorm becomes a ScaleAndBias."
        )
        raise
    in_training = followed_layers(trained)
    affine = {path: [v for v in (n.scale, n.bias) if v is not None] for path, n in norms.items()}
    owners = Counter(id(variable) for variables in affine.values() for variable in variables)
    return {
        path: layer
        for path, layer in followed_layers(evaluated).items()
        if in_training.get(path) == layer
        and (norms[path].scale is None or is_all(norms[path].scale, 1))
        and all(owners[id(variable)] == 1 for variable in affine[path])
    }


def _add_bias(layer: Any, batch_norm: Normalization) -> None:
    """Adds the bias of the normalization that follows the layer to the layer's own."""
    shape = (*stack_sizes(layer), batch_norm.num_features)

    def total(own: Any, added: Any) -> Any:
        bias = jnp.zeros(shape, layer.param_dtype) if own is None else own
        wide = promote(bias)
        return (wide if added is None else wide + promote(added, wide)).astype(bias.dtype)

    variables = layer.bias, batch_norm.bias
    own, added = (None if x is None else x.get_value() for x in variables)
    is_abstract = isinstance(layer.kernel.get_value(), jax.ShapeDtypeStruct)
    bias = jax.eval_shape(total, own, added) if is_abstract else total(own, added)
    set_bias(layer, bias, batch_norm.bias)


def _modules_by_kernel(model: nnx.Module) -> dict[Path, Any]:
    """Returns all modules by the path that a kernel of theirs has."""
    return {Path(map(str, (*path, "kernel"))): module for path, module in nnx.iter_modules(model)}


def _fold_into(module: Any, norm: Normalization, layer: MarkedLayer) -> None:
    """Writes a normalization into the kernel and bias of the module that it follows."""
    variables = (module.bias, norm.mean, norm.var, norm.scale, norm.bias)
    arrays = [None if variable is None else variable[...] for variable in variables]
    try:
        folded = fold_into_kernel(
            module.kernel[...], *arrays, fan_in_axes=layer.fan_in, epsilon=norm.epsilon
        )
    except ValueError as error:
        error.add_note(f"The error was raised for {layer.kernel!r}.")
        raise
    module.kernel = module.kernel.replace(folded.kernel)
    set_bias(module, folded.bias, norm.bias)
