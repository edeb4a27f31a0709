"""Batch normalization written into the kernels in front of it, for inference."""

from typing import Any, NamedTuple

from flax import nnx

from jaxnorm._fold import fold_into_kernel
from jaxnorm._trees._node import Axes
from jaxnorm.nnx._edit import Path, clone, replaced, set_bias
from jaxnorm.nnx._followed import followed_layers
from jaxnorm.nnx._replace_batch_norm import Normalization, batch_norms, own_dtype
from jaxnorm.nnx._scale_and_bias import Identity


class FoldedModel(NamedTuple):
    """A model for inference.

    Attributes:
        model: the new model, in evaluation mode.
        remaining: the paths of the BatchNorm layers that are still in it, because they do not
            directly follow a kernel: in front of one (pre-activation residual nets), after a sum,
            or after a layer whose output something else reads too; because they are called with
            ``use_running_average=False`` in evaluation; or are of a subclass with its own call.
    """

    model: nnx.Module
    remaining: list[Path]


def fold_batch_norm(model: nnx.Module, *inputs: Any, **keywords: Any) -> FoldedModel:
    """A copy of the model with every BatchNorm that follows a kernel written into that kernel.

    The result computes what the model computes in evaluation, with the plain network's FLOPs and
    bytes; a BatchNorm's own ``dtype`` is kept, but not what type its parameters gave a result
    without one (Flax's float32 ones meeting bfloat16). What cannot be written into a kernel stays,
    and is named. The function looks for Flax's BatchNorm and this library's, in all its variants,
    `PopulationNorm` and `Standardization`.

    Args:
        model: any NNX model with its running statistics; it is not changed.
        *inputs: what the model is called with, arrays or ``jax.ShapeDtypeStruct``.
        **keywords: what it is called with by name. An argument that says whether it trains
            (``train``, ``training``, ``is_training``, ``deterministic``) may be left out; whatever
            it says, the model is read in evaluation.

    Returns:
        ``(model, remaining)``.

    Raises:
        ValueError: if the model has no BatchNorm layer.
        TypeError: if the model is another library's.

    Example:
        >>> import jax.numpy as jnp
        >>> rngs = nnx.Rngs(0)
        >>> model = nnx.Sequential(nnx.Linear(3, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs))
        >>> folded, remaining = fold_batch_norm(model, jnp.ones((1, 3)))
        >>> type(folded.layers[1]).__name__, remaining
        ('Identity', [])
    """
    copy = clone(model)
    norms = batch_norms(copy)
    followed = followed_layers(copy, list(norms), inputs, keywords, running=True)
    modules = dict(nnx.iter_modules(copy))
    for path, found in followed.items():
        _fold_into(modules[found.layer], norms[path], found.fan_in)
    copy = replaced(copy, {id(norms[p]): Identity(dtype=own_dtype(norms[p])) for p in followed})
    copy.eval()
    return FoldedModel(copy, [path for path in norms if path not in followed])


def _fold_into(layer: Any, norm: Normalization, fan_in: Axes) -> None:
    variables = (layer.bias, norm.mean, norm.var, norm.scale, norm.bias)
    folded = fold_into_kernel(
        layer.kernel[...],
        *(None if variable is None else variable[...] for variable in variables),
        fan_in_axes=fan_in,
        epsilon=norm.epsilon,
    )
    layer.kernel = layer.kernel.replace(folded.kernel)
    set_bias(layer, folded.bias, norm.bias)
