"""Gradient clipping, layer by layer."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import warn
from jaxnorm._numerics import nonzero, promote, root
from jaxnorm._paths import Path, map_entries, named_entries


def clip_by_layer_norm(
    max_norm: float | np.floating[Any] | Float[Array, ""],
) -> optax.GradientTransformation:
    """Scales each layer's update down to a joint L2 norm of at most ``max_norm``.

    g_l <- g_l min(1, max_norm / ||g_l||). The leaves that share a parent (kernel and bias of
    ``encoder/0``) are one layer; a reparametrized kernel is one leaf of its parent.

    Args:
        max_norm: a positive number; infinity clips nothing.

    Returns:
        A stateless transformation. A layer of zero gradients stays zero. A layer whose squares
        overflow float32 (entries above about 1e19), or with an infinite or NaN entry, becomes NaN.
        ``optax.apply_if_finite`` tests the updates that it gets: put it around the rest of the
        chain, ``chain(clip_by_layer_norm(1.0), apply_if_finite(optimizer, 5))``.

    Raises:
        ValueError: for a ``max_norm`` that is not positive.

    Warns:
        UserWarning: for several matrices in the tree itself, or in a list: they count as one layer.

    Under pmap and shard_map clip after the gradients' mean over devices: clipping the gradient of
    each device is another method. Norms are computed in float32 or wider; shapes, types and
    shardings are kept.

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

    def clip(updates: PyTree, params: PyTree | None) -> PyTree:
        del params
        layers: dict[tuple[str, ...], list[Any]] = {}
        for path, entry in named_entries(updates):
            layers.setdefault(path[:-1], []).extend(jax.tree.leaves(entry))
        _warn_of_flat(updates)
        factors = {layer: _factor(leaves, max_norm) for layer, leaves in layers.items() if leaves}

        def clipped(path: Path, entry: Any) -> Any:
            return jax.tree.map(lambda leaf: _scaled(leaf, factors[path[:-1]]), entry)

        return map_entries(clipped, updates)

    return optax.stateless(clip)


def _warn_of_flat(updates: PyTree) -> None:
    """Warns of layers that hold several matrices in no module of their own."""
    matrices = Counter(
        path[:-1]
        for path, entry in named_entries(updates)
        if max((x.ndim for x in jax.tree.leaves(entry)), default=0) > 1
        and (len(path) == 1 or path.name.isdecimal())
    )
    if flat := [Path(parent) for parent, count in matrices.items() if count > 1]:
        where = ", ".join(f"in {parent!r}" if parent else "in the tree itself" for parent in flat)
        warn(
            f"clip_by_layer_norm got several matrices {where}, without a parent of their own, and "
            "clips them together, as one layer; wanted the leaves of each layer in a dict or list "
            "of their own: {'encoder': {'kernel': ..., 'bias': ...}, ...}."
        )


def _factor(leaves: list[Float[Array, "..."]], max_norm: Any) -> Float[Array, ""]:
    """Returns min(1, max_norm / ||g||), and NaN if the norm is not finite."""
    squares = [jnp.square(promote(leaf, *leaves)).sum() for leaf in leaves]
    norm = root(jnp.stack(squares).sum())
    factor = jnp.minimum(1, jnp.asarray(max_norm, norm.dtype) / nonzero(norm))
    return jnp.where(norm < jnp.inf, factor, jnp.nan)


def _scaled(leaf: Float[Array, "..."], factor: Float[Array, ""]) -> Float[Array, "..."]:
    return (promote(leaf, factor) * factor).astype(leaf.dtype)
