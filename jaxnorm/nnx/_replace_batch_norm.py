"""Taking batch normalization out of someone's model."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxnorm._numerics import promote
from jaxnorm.nnx._batch_norm import BatchNorm
from jaxnorm.nnx._edit import Path, check_module, clone, replaced, set_bias
from jaxnorm.nnx._followed import followed_layers, has_own_call
from jaxnorm.nnx._population_norm import PopulationNorm
from jaxnorm.nnx._scale_and_bias import Identity, ScaleAndBias

#: The layers that are taken out; `Standardization` is a `BatchNorm`.
Normalization = nnx.BatchNorm | BatchNorm | PopulationNorm


def scale_and_bias(batch_norm: Normalization) -> ScaleAndBias:
    """The affine part of a batch normalization layer, with its scale and bias as they are.

    They are the same variables: frozen ones (of a subclass of ``nnx.Param``) stay frozen, and those
    that several layers share stay shared.

    Example:
        >>> scale_and_bias(nnx.BatchNorm(3, rngs=nnx.Rngs(0))).bias.shape
        (3,)
    """
    if not isinstance(batch_norm.axis, int):
        raise ValueError(
            f"the batch normalization layer normalizes axes {batch_norm.axis}; wanted one feature "
            "axis. Give replace_batch_norm a with_= that makes a layer for it."
        )
    if has_own_call(batch_norm):
        raise ValueError(
            f"{type(batch_norm).__name__} has a __call__ of its own, of which a scale and a bias "
            "would leave nothing. Give replace_batch_norm a with_= that makes a layer for it."
        )
    dtype = own_dtype(batch_norm)
    layer = ScaleAndBias(batch_norm.num_features, axis=batch_norm.axis, dtype=dtype)
    layer.channel_scale, layer.bias = batch_norm.scale, batch_norm.bias
    return layer


def replace_batch_norm(
    model: nnx.Module,
    *inputs: Any,
    with_: Callable[[Normalization], nnx.Module] = scale_and_bias,
    **keywords: Any,
) -> nnx.Module:
    """A copy of the model in which every BatchNorm layer is a scale and a bias.

    Flax's, and this library's in all its variants, `PopulationNorm` and `Standardization` too: of
    a layer without scale and bias nothing is left.

    With example ``inputs`` the model is traced, and where a BatchNorm directly follows a Linear, a
    Conv or a ConvTranspose (nothing else reads that layer's output, in training or in evaluation)
    nothing is left of it: its bias becomes the layer's, and its scale is the kernel's own, which
    ``reparametrize(params, Scaled)`` makes a parameter. That is O(parameters) instead of
    O(activations) per step. Elsewhere (in front of a kernel, as in pre-activation residual nets,
    behind a dropout, with an initial scale other than 1, or with a shared one) a `ScaleAndBias`
    layer takes its place, as everywhere without ``inputs``.

    An existing network becomes trainable without normalization in three lines:
    ``model = replace_batch_norm(model, x)``, ``apply, params, state = functionalize(model)``,
    ``params = project(reparametrize(params, Scaled))``, and `sphere_projection` last in its chain.

    Args:
        model: any NNX model; it is not changed.
        *inputs: what the model is called with, arrays or ``jax.ShapeDtypeStruct``.
        with_: what takes a BatchNorm's place, ``batch_norm -> module``. Any other than the default
            is used for every one of them.
        **keywords: what the model is called with by name. An argument that says whether it trains
            (``train``, ``training``, ``is_training``, ``deterministic``) may be left out; whatever
            it says, the model is read in both modes.

    Returns:
        The new model. Running statistics are gone. What takes a BatchNorm's place gives the type
        that it was told to give (its ``dtype``), or that of its input: not what its parameters made
        of that (Flax's float32 ones meeting bfloat16).

    Raises:
        ValueError: if the model has no BatchNorm layer, or one of several axes or of a subclass
            with a call of its own (without ``with_``).
        TypeError: if the model is another library's.

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
    norms = batch_norms(copy)
    traced = with_ is scale_and_bias and (inputs or keywords)
    followed = _weight_side(copy, norms, inputs, keywords) if traced else {}
    modules = dict(nnx.iter_modules(copy))
    for path, layer in followed.items():
        add_bias(modules[layer], norms[path])
    return replaced(
        copy,
        {
            id(norm): Identity(dtype=own_dtype(norm)) if path in followed else with_(norm)
            for path, norm in norms.items()
        },
    )


def own_dtype(batch_norm: Normalization) -> Any:
    """The type that a layer was told to give its result, or None."""
    return getattr(batch_norm, "dtype", None)


def batch_norms(model: nnx.Module) -> dict[Path, Any]:
    """The BatchNorm layers by path. Raises ValueError if there is none."""
    found = {p: m for p, m in nnx.iter_modules(model) if isinstance(m, Normalization)}
    if not found:
        check_module(model)
        raise ValueError(
            f"{type(model).__name__} has no BatchNorm layer, Flax's or this library's, so there is "
            "nothing to take out."
        )
    return found


def add_bias(layer: Any, batch_norm: Normalization) -> None:
    """Gives the layer the bias of the normalization that follows it, on top of its own."""
    zeros = jnp.zeros(batch_norm.num_features, layer.param_dtype)
    own = zeros if layer.bias is None else layer.bias[...]
    bias = promote(own)
    if batch_norm.bias is not None:
        bias = bias + promote(batch_norm.bias[...], bias)
    set_bias(layer, bias.astype(own.dtype), batch_norm.bias)


def _weight_side(
    model: nnx.Module, norms: dict[Path, Any], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> dict[Path, Path]:
    """The layers whose kernels can carry the scale of the normalization that follows them.

    It starts at 1, and is, with the bias, of one normalization alone.
    """
    affine = {path: [v for v in (n.scale, n.bias) if v is not None] for path, n in norms.items()}
    counts = Counter(id(variable) for variables in affine.values() for variable in variables)
    own = [
        path
        for path, norm in norms.items()
        if (norm.scale is None or bool(jnp.all(norm.scale[...] == 1)))
        and all(counts[id(variable)] == 1 for variable in affine[path])
    ]
    followed = followed_layers(model, list(norms), inputs, keywords, modes=(False, True))
    return {path: found.layer for path, found in followed.items() if path in own}
