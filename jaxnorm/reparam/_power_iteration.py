"""The state of spectrally normalized kernels: kept, refreshed and attached by the training loop."""

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._trees._paths import entries, is_absent, unique_names
from jaxnorm.reparam._spectrally_normalized import (
    SpectrallyNormalized,
    exact_vector,
    refreshed_vector,
)

#: Singular vectors by the path of their kernel: arrays only, so any checkpoint library keeps them.
Vectors = dict[str, Float[Array, "..."]]


def power_iteration(params: PyTree, vectors: Vectors | None = None, iterations: int = 1) -> Vectors:
    """Follows the leading singular vectors of every `SpectrallyNormalized` kernel.

    Call it once without ``vectors`` to start from the exact ones, then once a training step, before
    or after the update; never in evaluation. O(parameters) a call.

    Args:
        params: a tree of parameters.
        vectors: what the last call returned, or None to start.
        iterations: the number of iterations v <- V'Vv / ||V'Vv||.

    Returns:
        The right singular vectors by path, unit vectors in float32 or wider; not parameters: keep
        them beside the optimizer's state.

    Raises:
        ValueError: if ``vectors`` does not know a kernel of ``params``.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": SpectrallyNormalized.from_kernel(jnp.diag(jnp.ones(2)), -2)}
        >>> {path: v.shape for path, v in power_iteration(params).items()}
        {'kernel': (2,)}

    Source: Miyato et al. 2018, Algorithm 1.
    """
    nodes = {path: node for path, node in _nodes(params) if isinstance(node, SpectrallyNormalized)}
    matrices = {path: jax.lax.stop_gradient(node.matrix()) for path, node in nodes.items()}
    if vectors is None:
        return {path: exact_vector(matrix) for path, matrix in matrices.items()}
    return {
        path: refreshed_vector(matrix, promote(_of(vectors, path), matrix), iterations)
        for path, matrix in matrices.items()
    }


def attach_singular_vectors(params: PyTree, vectors: Vectors) -> PyTree:
    """The parameters with each spectrally normalized kernel knowing its vector.

    For use inside the loss, in front of `effective`:
    ``effective(attach_singular_vectors(params, vectors))``. Gradients with respect to ``params``
    have no entry for the vectors.

    Args:
        params: a tree of parameters.
        vectors: what `power_iteration` returned.

    Returns:
        The same tree, with vectors in the nodes.

    Raises:
        ValueError: if ``vectors`` does not know a kernel of ``params``.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": SpectrallyNormalized.from_kernel(jnp.diag(jnp.ones(2)), -2)}
        >>> attach_singular_vectors(params, power_iteration(params))["kernel"].vector.shape
        (2,)
    """
    attached = [
        dataclasses.replace(node, vector=_of(vectors, path))
        if isinstance(node, SpectrallyNormalized)
        else node
        for path, node in _nodes(params)
    ]
    return jax.tree.unflatten(jax.tree.structure(params, is_leaf=_is_leaf), attached)


def _nodes(params: PyTree) -> list[tuple[str, Any]]:
    """Every leaf, a spectrally normalized kernel being one, wherever it is nested."""
    named = entries(params, _is_leaf)
    unique_names([path for path, leaf in named if isinstance(leaf, SpectrallyNormalized)])
    return [(str(path), leaf) for path, leaf in named]


def _is_leaf(x: Any) -> bool:
    return is_absent(x) or isinstance(x, SpectrallyNormalized)


def _of(vectors: Vectors, path: str) -> Float[Array, "..."]:
    if path not in vectors:
        raise ValueError(
            f"there is no singular vector for the kernel {path!r}; there are some for "
            f"{', '.join(vectors) or 'none'}. Start them with power_iteration(params)."
        )
    return vectors[path]
