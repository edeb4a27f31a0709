"""Spectral normalization: kernels of spectral norm 1, and the singular vectors as state."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._axes import negative_axes, per_unit, refuse_leading_units, unit_shape
from jaxnorm._matrices import as_matrices
from jaxnorm._node import Axes, Reparametrization, effective_kernel
from jaxnorm._numerics import product, promote, quotient, root
from jaxnorm._paths import Path, is_absent, map_entries, named_entries
from jaxnorm._phases import refuse_phases

Matrix = Float[Array, "... fan_in units"]
Vector = Float[Array, "... units"]

#: Singular vectors by the path of their kernel; arrays only, for any checkpoint library.
Vectors = dict[str, Float[Array, "..."]]


class SpectrallyNormalized(Reparametrization):
    """Kernel divided by its largest singular value: W = V / sigma(V), V of (fan-in x units).

    sigma = u'Vv with the leading singular vectors held fixed, so its gradient is u v', and second
    derivatives (Hessian products) lack the contribution of the vectors' own motion. The right
    vector is *state*, not a parameter: the field is None in the parameters, so that nothing decays,
    averages or trains it, and the training loop carries the vectors: ``vectors =
    power_iteration(params, vectors)`` once per step and ``effective(attach_singular_vectors(params,
    vectors))`` in the loss. Without a vector, `effective` computes the exact one by an
    eigendecomposition, as for an export. A zero kernel stays zero, with zero gradients.

    On a mesh with explicit axes wrap the call: ``jax.sharding.auto_axes(effective,
    out_sharding=...)``; the singular vectors mix all shards of a kernel.

    Attributes:
        kernel: V, an array of the kernel's shape and type.
        vector: the right singular vector, of length the number of units, or None.
        fan_in_axes: negative axes of the kernel; static.
        unit_axes: the kernel's other axes when the node was created; axes that vmap stacks in
            front of it later count kernels, not units. Static.

    Example:
        >>> node = SpectrallyNormalized.from_kernel(jnp.diag(jnp.array([4.0, 1.0])), -2)
        >>> jnp.diag(node.effective()).round(5).tolist()
        [1.0, 0.25]

    Source: Miyato et al. 2018. The kernel's own norm is lost; wrap it in `Scaled` to learn one.
    """

    kernel_fields = ("kernel",)
    static_fields = ("fan_in_axes", "unit_axes")

    kernel: Any
    vector: Any
    fan_in_axes: Axes
    unit_axes: Axes

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: int | Axes) -> "SpectrallyNormalized":
        """Returns the node of the kernel divided by its spectral norm.

        Raises ValueError for units on both sides of the fan-in, whose leading axes may count
        kernels: ``jax.vmap`` of this call makes the node of a stack, and a kernel whose units are
        joined to one axis is one matrix.
        """
        plain = effective_kernel(kernel)
        axes = negative_axes(fan_in_axes, plain.ndim, "the kernel")
        refuse_phases(axes, "the kernel", "SpectrallyNormalized")
        advice = "jax.vmap of from_kernel makes the node of a stack; join the units of one matrix."
        refuse_leading_units(plain, axes, "the kernel of a SpectrallyNormalized", advice)
        units = tuple(axis for axis in range(-plain.ndim, 0) if axis not in axes)
        return cls(plain, None, axes, units)

    def effective(self) -> Float[Array, "..."]:
        """Returns the kernel of spectral norm 1, computed in float32 or wider, in its type."""
        matrix = self.matrix()
        constant = jax.lax.stop_gradient(matrix)
        exact = self.vector is None
        right = _exact_vector(constant) if exact else promote(self.vector, self.kernel)
        # The gradient of the length of Vv is uv', like that of u'Vv with both vectors held fixed.
        right = jax.lax.stop_gradient(_normalized(right))
        sigma = _length(_times(matrix, right))
        inverse = jnp.expand_dims(
            quotient(jnp.ones_like(sigma), sigma).squeeze(-1), tuple(range(-len(self.unit_axes), 0))
        )
        wide, axes = promote(self.kernel), self.fan_in_axes
        # One factor per unit, so that its gradient is one pass over the kernel.
        factor = per_unit(jnp.broadcast_to(inverse, unit_shape(wide, axes)), axes)
        return (wide * factor).astype(self.kernel.dtype)

    def parameter_count(self) -> int:
        """Returns the kernel's size; an attached vector is no parameter."""
        return int(self.kernel.size)

    def rescaled(self, factor: Float[Array, "..."]) -> "SpectrallyNormalized":
        """Returns the node unchanged: a kernel of spectral norm 1 has no scale."""
        del factor
        return self

    def matrix(self) -> Matrix:
        """Returns the kernel as (..., fan-in, units), in float32 or wider."""
        stacked = self.kernel.ndim - len(self.fan_in_axes) - len(self.unit_axes)
        return as_matrices(promote(self.kernel), self.fan_in_axes, stacked)[0]


def _exact_vector(matrix: Matrix) -> Vector:
    """Returns the right singular vector of the largest singular value."""
    gram = product(matrix.mT, matrix)
    _, vectors = jnp.linalg.eigh(gram)
    leading: Vector = vectors[..., -1]
    return leading


def _iterated(matrix: Matrix, vector: Vector, iterations: int) -> Vector:
    """Runs power iterations v <- V'Vv / ||.|| from ``vector``; a zero matrix keeps it."""

    def refresh(_: Any, vector: Vector) -> Vector:
        left = _normalized(_times(matrix, vector))
        following = _normalized(_times(matrix.mT, left))
        alive = jnp.any(following != 0, axis=-1, keepdims=True)
        return jnp.where(alive, following, vector)

    result: Vector = jax.lax.fori_loop(0, iterations, refresh, vector)
    return result


def _times(matrix: Float[Array, "... m n"], vector: Float[Array, "... n"]) -> Float[Array, "... m"]:
    return product(matrix, vector[..., None])[..., 0]


def _normalized(vector: Float[Array, "... n"]) -> Float[Array, "... n"]:
    return quotient(vector, _length(vector))


def _length(vector: Float[Array, "... n"]) -> Float[Array, "... 1"]:
    return root(jnp.square(vector).sum(-1, keepdims=True))


def power_iteration(params: PyTree, vectors: Vectors | None = None, iterations: int = 1) -> Vectors:
    """Updates the leading singular vectors of every `SpectrallyNormalized` kernel.

    Call it once without ``vectors`` to start from the exact ones, then once per training step,
    before or after the update; never in evaluation. A call takes O(parameters) operations.

    Args:
        params: a tree of parameters.
        vectors: the result of the last call, or None to start.
        iterations: the number of iterations v <- V'Vv / ||V'Vv||.

    Returns:
        The right singular vectors by path, unit vectors in float32 or wider. They are no
        parameters: keep them beside the optimizer's state.

    Raises:
        KeyError: naming a kernel of ``params`` that ``vectors`` does not know.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": SpectrallyNormalized.from_kernel(jnp.diag(jnp.ones(2)), -2)}
        >>> {path: v.shape for path, v in power_iteration(params).items()}
        {'kernel': (2,)}

    Under jit the vectors are those of the whole kernels; under pmap and shard_map with replicated
    parameters each device computes the same, and a kernel must be whole.

    Source: Miyato et al. 2018, Algorithm 1.
    """
    matrices = {
        path: jax.lax.stop_gradient(leaf.matrix())
        for path, leaf in named_entries(params, _is_leaf)
        if isinstance(leaf, SpectrallyNormalized)
    }
    if vectors is None:
        return {str(path): _exact_vector(matrix) for path, matrix in matrices.items()}
    return {
        str(path): _iterated(matrix, promote(_vector_of(vectors, path), matrix), iterations)
        for path, matrix in matrices.items()
    }


def attach_singular_vectors(params: PyTree, vectors: Vectors) -> PyTree:
    """Puts the singular vectors into the spectrally normalized kernels.

    Call it inside the loss, before `effective`:
    ``effective(attach_singular_vectors(params, vectors))``. Gradients with respect to ``params``
    have no entry for the vectors.

    Args:
        params: a tree of parameters.
        vectors: the result of `power_iteration`.

    Returns:
        The same tree, with vectors in the nodes.

    Raises:
        KeyError: naming a kernel of ``params`` that ``vectors`` does not know.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": SpectrallyNormalized.from_kernel(jnp.diag(jnp.ones(2)), -2)}
        >>> attach_singular_vectors(params, power_iteration(params))["kernel"].vector.shape
        (2,)

    Nothing is computed or communicated, also under jit, pmap and shard_map.

    Source: Miyato et al. 2018, Algorithm 1.
    """

    def attached(path: Path, leaf: Any) -> Any:
        is_spectral = isinstance(leaf, SpectrallyNormalized)
        return leaf.replaced(vector=_vector_of(vectors, path)) if is_spectral else leaf

    return map_entries(attached, params, is_leaf=_is_leaf)


def _vector_of(vectors: Vectors, path: Path) -> Vector:
    """Returns the vector of a kernel. Raises KeyError, with what to do, if there is none."""
    if str(path) not in vectors:
        known = ", ".join(vectors) or "(there are none)"
        raise KeyError(
            f"there is no singular vector for the kernel {path!r}; the vectors are those of: "
            f"{known}. Start them from these parameters: vectors = power_iteration(params)."
        )
    return vectors[str(path)]


def _is_leaf(x: Any) -> bool:
    return is_absent(x) or isinstance(x, SpectrallyNormalized)
