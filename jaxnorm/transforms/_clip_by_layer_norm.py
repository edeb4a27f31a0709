"""Gradient clipping layer by layer."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote, root
from jaxnorm._sums import largest, total
from jaxnorm._trees._paths import entries, rebuild_entries


def clip_by_layer_norm(
    max_norm: float | np.floating[Any] | Float[Array, ""],
) -> optax.GradientTransformation:
    """Scales each layer's update down to a joint L2 norm of at most ``max_norm``.

    g_l <- g_l min(1, max_norm / ||g_l||), where a layer is the leaves that share a parent path
    (kernel and bias of ``encoder/0``); a reparametrized kernel is one leaf of its parent.

    Args:
        max_norm: a positive number; infinity clips nothing. A traced one that is negative makes the
            updates NaN.

    Returns:
        A stateless transformation. A layer of zero gradients stays zero, and one of finite
        gradients of any size is clipped, whether or not their squares overflow; a layer with an
        infinite or NaN entry becomes NaN, for ``optax.apply_if_finite`` to see.

    Raises:
        ValueError: for a ``max_norm`` that is not positive.

    Clip after the gradients' mean over devices: clipping each device's own gradient is another
    method. Norms are computed in float32 or wider; shapes, types and shardings are kept.

    Example:
        >>> import jax.numpy as jnp
        >>> tx = clip_by_layer_norm(1.0)
        >>> gradient = {"dense": {"kernel": jnp.array([[3.0]]), "bias": jnp.array([4.0])}}
        >>> clipped, _ = tx.update(gradient, tx.init(gradient))
        >>> {name: round(float(g.sum()), 4) for name, g in clipped["dense"].items()}
        {'bias': 0.8, 'kernel': 0.6}

    Source: Littwin and Wolf 2018 (the variance constancy loss), section 3: an L2 clipping at 1.
    """
    if not isinstance(max_norm, jax.core.Tracer) and not max_norm > 0:
        raise ValueError(f"max_norm is {max_norm}; wanted a positive number.")

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        del params
        named = entries(updates)
        layers = [path[:-1] for path, _ in named]
        factors = _factors(layers, [entry for _, entry in named], max_norm)
        clipped = [
            jax.tree.map(lambda leaf, layer=layer: _scaled(leaf, factors[layer]), entry)
            for layer, (_, entry) in zip(layers, named, strict=True)
        ]
        return rebuild_entries(updates, clipped), state

    return optax.GradientTransformation(init, update)


class _Factor(NamedTuple):
    """What a layer is divided and then multiplied by; 1 and 1 if it is not clipped.

    Two steps, since the quotient of the limit and a norm of 1e38 is below the smallest float.
    """

    divisor: Float[Array, ""]
    multiplier: Float[Array, ""]


def _factors(
    layers: list[tuple[str, ...]], entries: list[Any], max_norm: Any
) -> dict[tuple[str, ...], _Factor]:
    """How each layer is scaled."""
    leaves: dict[tuple[str, ...], list[Any]] = {layer: [] for layer in layers}
    for layer, entry in zip(layers, entries, strict=True):
        leaves[layer] += jax.tree.leaves(entry)
    return {layer: _factor(parts, max_norm) for layer, parts in leaves.items() if parts}


def _factor(leaves: list[Float[Array, "..."]], max_norm: Any) -> _Factor:
    """The norm is that of the layer over its largest entry, so that no square overflows."""
    wide = [promote(leaf, *leaves) for leaf in leaves]
    # The result does not depend on what is divided by: nor does its derivative.
    divisor = _invertible(jnp.stack([largest(leaf) for leaf in wide]).max())
    norm = root(jnp.stack([_sum(jnp.square(leaf / divisor)) for leaf in wide]).sum())
    with np.errstate(over="ignore"):  # a Python float may be infinite in the norm's type
        limit = jnp.asarray(max_norm, norm.dtype)
    limit = jnp.where(limit < 0, jnp.nan, limit)
    # Written so that NaN counts as clipped: it must stay visible in the result.
    clipped = ~(norm <= limit / divisor)
    multiplier = limit / jnp.where(clipped, norm, 1)
    return _Factor(jnp.where(clipped, divisor, 1), jnp.where(clipped, multiplier, 1))


def _sum(values: Float[Array, "..."]) -> Float[Array, ""]:
    return total(values, tuple(range(-values.ndim, 0))).reshape(())


def _invertible(size: Float[Array, ""]) -> Float[Array, ""]:
    """A positive number of that size whose reciprocal, by which XLA multiplies, is one too."""
    tiny = float(jnp.finfo(size.dtype).tiny)
    return jnp.where(jnp.isinf(size), size, jnp.clip(size, tiny, 1 / tiny))


def _scaled(leaf: Float[Array, "..."], factor: _Factor) -> Float[Array, "..."]:
    wide = promote(leaf, factor.divisor)
    return (wide / factor.divisor * factor.multiplier).astype(leaf.dtype)
