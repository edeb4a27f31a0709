"""Orthogonal kernels: params + update lands where all singular values of a kernel are equal."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._constraints._project import kernels_of
from jaxnorm._constraints._unit import SMALLEST, Weights, check_squared_radius
from jaxnorm._numerics import nonzero, product, promote
from jaxnorm._trees._axes import fan_in, negative_axes
from jaxnorm._trees._constrained import Setting, setting_per_leaf
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._node import Axes
from jaxnorm.transforms._sphere_projection import landing

Matrix = Float[Array, "... fan_in units"]
Tall = Float[Array, "... long short"]

#: Odd polynomials a s + b s^3 + c s^5 of the singular values, one an iteration. The first ones take
#: any s from 1e-5 to 1 into [0.68, 1.21] (Jordan et al. 2024); the last ones take that to 1, and
#: each makes of an error e one of 2.5 e^3.
POLYNOMIALS = 8 * ((3.4445, -4.775, 2.0315),) + 4 * ((1.875, -1.25, 0.375),)


def project_to_stiefel(
    weights: Weights,
    fan_in_axes: int | Iterable[int],
    squared_radius: float | Float[Array, ""] = 2.0,
    *,
    stacked: int = 0,
) -> Weights:
    """The nearest kernel whose singular values, as a (fan-in x units) matrix, are all equal.

    W <- s U V' of W = U S V' (singular values S), with s^2 = c max(1, units / fan-in). The units
    have the mean squared norm c; where they are no more than the fan-in they are orthogonal, and
    each has it. With c = 1, s is the scale that Muon gives its updates.

    U V', the polar factor, is found by twelve Newton-Schulz iterations, which are matrix products
    in float32 or wider and need no decomposition. If the smallest singular value of W is at least
    1e-4 of the largest, the result's are s to 2e-6 relative in float32 and to 1e-13 in float64; one
    that is smaller is raised, but not to s. In narrower types the result is rounded once more.

    Args:
        weights: array of any rank and floating type.
        fan_in_axes: the axes that one unit's weight vector runs over; the others count units.
        squared_radius: c, a positive number.
        stacked: the number of leading axes that count kernels, as ``nn.scan`` adds one.

    Returns:
        An array of the same shape and type. Zero weights, to which no point is nearest, stay zero.
        Where squares overflow it is NaN.

    Raises:
        ValueError: for axes that the array does not have, and for c that is not positive.
        TypeError: for weights that are not real floating-point numbers.

    Under jit and pmap it means the same with parameters of any sharding: its products take all of a
    kernel, so a kernel in parts costs collectives. Inside shard_map a kernel must be whole.

    Example:
        >>> import jax.numpy as jnp
        >>> project_to_stiefel(jnp.array([[3.0, 0.0], [0.0, 0.5]]), -2, 1.0).round(4).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    Source: Higham 2008, "Functions of matrices", section 8.3; Jordan et al. 2024 (Muon).
    """
    axes = negative_axes(fan_in_axes, weights.ndim, "the weights array")
    check_squared_radius(squared_radius, "the weights array")
    return _nearest(promote(weights), axes, squared_radius, stacked).astype(weights.dtype)


def stiefel_projection(
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    tangent: bool = False,
    stacked: Setting = 0,
) -> optax.GradientTransformation:
    """Edits the update so that all singular values of each kernel of params + update are equal.

    `project_to_stiefel` of params + update, kernel by kernel, whatever optimizer made the update:
    with ``optax.contrib.muon`` before it, whose steps have equal singular values too, both are
    controlled in the spectral norm. **Put it last in the chain**: what comes after it moves the
    weights off the set. The first update also lands on the set from parameters that are not on it.

    Args:
        layout: which leaves are kernels, and their fan-in axes; all other axes together are the
            columns of the matrix, so those of attention's heads are one matrix.
        squared_radius: c; the singular values are s = sqrt(c max(1, units / fan-in)). A positive
            number, or a pytree prefix of them.
        tangent: whether the update U is first projected onto the tangent space at the old weights,
            U <- U - W (W'U + U'W) / (2 s^2), with more units than fan-in the same of transposes: a
            step of Riemannian optimization with the projection as its retraction. Under Muon it is
            not the steepest step in the spectral norm, which has no closed form.
        stacked: the number of leading axes that count kernels, as ``nn.scan`` adds one; a number,
            or a pytree prefix of them.

    Returns:
        A stateless transformation whose ``update`` needs ``params``. Where params + update is zero,
        the kernel keeps its old weights. An update is in the type of the parameters, or its own if
        that is wider.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing or c is not positive; in
            ``update``, without ``params``.
        TypeError: in ``init``, for `LinearlyConstrained` kernels, whose coordinates are no weights.

    It sees parameters alone, so it means the same under jit, pmap and shard_map with replicated
    parameters; kernels in parts need jit, and cost collectives. A step costs twelve iterations of
    three products each, of the kernel or its Gram matrix; Muon's own are five. Under
    ``optax.inject_hyperparams`` name ``layout`` and ``stacked`` in ``static_args``.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.eye(2)}
        >>> tx = optax.chain(optax.sgd(0.5), stiefel_projection(squared_radius=1.0))
        >>> gradient = {"kernel": jnp.array([[0.0, 2.0], [-2.0, 1.0]])}
        >>> update, _ = tx.update(gradient, tx.init(params), params)
        >>> kernel = optax.apply_updates(params, update)["kernel"]
        >>> jnp.abs(kernel.T @ kernel - jnp.eye(2)).max() < 1e-5
        Array(True, dtype=bool)

    Source: Absil et al. 2008, example 4.1.3 (the polar factor as a retraction); Bernstein 2025,
    "Modular manifolds" (Muon on the Stiefel manifold).
    """

    def init(params: PyTree) -> optax.EmptyState:
        kernels_of(params, layout, squared_radius)
        return optax.EmptyState()

    def land(old: Any, step: Any, axes: Axes, radius: Any, lead: int) -> Any:
        if tangent:
            step = _tangent_part(step, old, axes, radius, lead)
        return _nearest(old + step, axes, radius, lead, old)

    def spread(old: Any, step: Any, axes: Axes, radius: Any, lead: int) -> Any:
        sharding = jax.typeof(old).sharding
        if not sharding.mesh.explicit_axes:
            return land(old, step, axes, radius, lead)
        # A kernel as one matrix has no sharding that its own would say.
        whole = jax.sharding.auto_axes(
            lambda old, step: land(old, step, axes, radius, lead), out_sharding=sharding
        )
        return whole(old, step)

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        radii = setting_per_leaf(squared_radius, updates, "squared_radius")
        leads = setting_per_leaf(stacked, updates, "stacked")
        landed = landing("stiefel_projection", spread, layout, updates, params, radii, leads)
        return landed, state

    return optax.GradientTransformation(init, update)


def _nearest(
    wide: Weights, axes: Axes, squared_radius: Any, stacked: int, old: Weights | None = None
) -> Weights:
    """The projection of wide weights; the old ones, or zeros, where they are zero."""
    matrices, restore = _matrices(wide, axes, stacked)
    squares = jnp.square(matrices).sum((-2, -1), keepdims=True)
    is_zero = squares <= SMALLEST
    length = jnp.sqrt(nonzero(squares, is_zero))
    length = jnp.where(length < jnp.inf, length, jnp.nan)
    landed = polar_factor(matrices / length) * _singular_value(matrices, squared_radius)
    kept = jnp.zeros_like(matrices) if old is None else _matrices(old, axes, stacked)[0]
    return restore(jnp.where(is_zero, kept, landed))


def polar_factor(matrix: Matrix) -> Matrix:
    """U V' of matrices U S V' of Frobenius norm 1; 0 of a zero matrix."""
    wide = matrix.shape[-2] < matrix.shape[-1]
    tall = matrix.mT if wide else matrix
    # ||S||_4 bounds the largest singular value from above, and is near it where all are alike.
    bound = jnp.sqrt(jnp.sqrt(jnp.square(_gram(tall)).sum((-2, -1), keepdims=True)))
    tall = tall / nonzero(bound)

    def iterate(x: Tall, polynomial: Float[Array, "3"]) -> tuple[Tall, None]:
        a, b, c = polynomial
        gram = _gram(x)
        return a * x + product(x, b * gram + c * product(gram, gram)), None

    tall, _ = jax.lax.scan(iterate, tall, jnp.asarray(POLYNOMIALS, tall.dtype))
    return tall.mT if wide else tall


def _tangent_part(
    step: Weights, weights: Weights, axes: Axes, squared_radius: Any, stacked: int
) -> Weights:
    """The step without its part W S, S symmetric, which would change the singular values of W."""
    (u, restore), (w, _) = _matrices(step, axes, stacked), _matrices(weights, axes, stacked)
    square = jnp.square(_singular_value(w, squared_radius))
    wide = w.shape[-2] < w.shape[-1]
    u, w = (u.mT, w.mT) if wide else (u, w)
    inner = product(w.mT, u)
    u = u - product(w, (inner + inner.mT) / (2 * square))
    return restore(u.mT if wide else u)


def _singular_value(matrix: Matrix, squared_radius: Any) -> Float[Array, ""]:
    """sqrt(c max(1, units / fan-in))."""
    rows, columns = matrix.shape[-2:]
    c = jnp.asarray(squared_radius, matrix.dtype).reshape(())
    return jnp.sqrt(c * max(1.0, columns / rows))


def _matrices(
    wide: Weights, axes: Axes, stacked: int
) -> tuple[Matrix, Callable[[Matrix], Weights]]:
    """Kernels as (..., fan-in, units), and the way back to their shape."""
    lead = tuple(range(-wide.ndim, stacked - wide.ndim))
    units = tuple(axis for axis in range(stacked - wide.ndim, 0) if axis not in axes)
    places = range(wide.ndim)
    moved = jnp.moveaxis(wide, (*lead, *axes, *units), places)
    matrices = moved.reshape(*moved.shape[: len(lead)], fan_in(wide, axes), -1)

    def restore(matrices: Matrix) -> Weights:
        return jnp.moveaxis(matrices.reshape(moved.shape), places, (*lead, *axes, *units))

    return matrices, restore


def _gram(tall: Tall) -> Float[Array, "... short short"]:
    return product(tall.mT, tall)
