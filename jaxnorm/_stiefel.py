"""Kernels whose singular values are all equal: the projection, and the edit of the update."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._axes import negative_axes, refuse_leading_units
from jaxnorm._constrain_updates import edit_updates
from jaxnorm._layout import (
    Layout,
    Setting,
    broadcast,
    flax_layout,
    kernel_rows,
)
from jaxnorm._matrices import Matrix, as_matrices, singular_value
from jaxnorm._mesh import whole
from jaxnorm._node import Axes
from jaxnorm._numerics import nonzero, norm_of_squares, product, promote
from jaxnorm._sphere import SMALLEST, Kernel, check_settings, check_squared_radius

Tall = Float[Array, "... long short"]

#: Odd polynomials a s + b s^3 + c s^5 of the singular values, one per iteration. The first eight
#: map any s from 1e-5 to 1 into [0.68, 1.21] (Jordan et al. 2024); the last four converge to 1, and
#: each turns an error e into 2.5 e^3.
POLYNOMIALS = 8 * ((3.4445, -4.775, 2.0315),) + 4 * ((1.875, -1.25, 0.375),)


def project_to_stiefel(
    kernel: Kernel,
    fan_in_axes: int | Iterable[int],
    squared_radius: float | Float[Array, ""] = 2.0,
    *,
    stacked: int | None = None,
) -> Kernel:
    """Projects a kernel onto the matrices (fan-in x units) whose singular values are all equal.

    W <- s U V' of W = U S V' (singular values S), with s^2 = c max(1, units / fan-in). The units
    have the mean squared norm c; if they are no more than the fan-in, they are orthogonal and each
    has the squared norm c. With c = 1, s is the scale that Muon gives its updates.

    U V', the polar factor, is found by twelve Newton-Schulz iterations, which are matrix products
    in float32 or wider and need no decomposition. If the smallest singular value of W is at least
    1e-4 of the largest, all of the result are s to 2e-6 relative in float32 and to 1e-13 in
    float64; a smaller one is raised, but not to s. In narrower types the result is rounded once
    more.

    Args:
        kernel: array of any rank and floating type.
        fan_in_axes: the axes of one unit's weight vector; the other axes count units.
        squared_radius: c, a positive number.
        stacked: the number of leading axes that count kernels, as ``nn.scan`` adds one; None for a
            kernel whose axes show that there are none.

    Returns:
        An array of the same shape and type. Zero weights, to which no point is nearest, stay zero.
        If squares overflow it is NaN.

    Raises:
        ValueError: for axes that the array does not have, for c that is not positive, and, without
            ``stacked``, for units on both sides of the fan-in: the leading ones may be a stack.
        TypeError: for weights that are not real floating-point numbers.

    Under jit and pmap the result is the same with parameters of any sharding: the products take all
    of a kernel, so a sharded kernel costs collectives. Inside shard_map a kernel must be whole.

    Example:
        >>> import jax.numpy as jnp
        >>> project_to_stiefel(jnp.array([[3.0, 0.0], [0.0, 0.5]]), -2, 1.0).round(4).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    Source: Higham 2008, "Functions of matrices", section 8.3; Jordan et al. 2024 (Muon).
    """
    axes = negative_axes(fan_in_axes, kernel.ndim, "the kernel")
    check_squared_radius(squared_radius, "the kernel")
    stacked = _checked_stack(kernel, axes, stacked, "the kernel")
    return _nearest(promote(kernel), axes, squared_radius, stacked).astype(kernel.dtype)


def stiefel_projection(
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    tangent: bool = False,
    stacked: Setting = None,
) -> optax.GradientTransformation:
    """Edits the update so that all singular values of each kernel of params + update are equal.

    `project_to_stiefel` of params + update, kernel by kernel, whatever optimizer made the update:
    with ``optax.contrib.muon`` before it, whose steps have equal singular values too, both are
    controlled in the spectral norm. **Put it last in the chain**: what comes after it moves the
    weights off the set. The first update also lands on the set from parameters that are not on it.

    Args:
        layout: which leaves are kernels, and their fan-in axes; all other axes together are the
            columns of the matrix, so that all heads of an attention are one matrix.
        squared_radius: c; the singular values are s = sqrt(c max(1, units / fan-in)). A positive
            number, or a pytree prefix of them.
        tangent: if True, the update U is first projected onto the tangent space at the old weights,
            U <- U - W (W'U + U'W) / (2 s^2), of the transposes if there are more units than fan-in:
            a step of Riemannian optimization with the projection as its retraction. Under Muon it
            is not the steepest step in the spectral norm, which has no closed form.
        stacked: the number of leading axes that count kernels, as ``nn.scan`` adds one; a number,
            or a pytree prefix of them; None for kernels whose axes show that there are none.

    Returns:
        A stateless transformation whose ``update`` needs ``params``. If params + update is zero,
        the kernel keeps its old weights. An update has the type of the parameters, or its own if
        that is wider.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing, c is not positive or, without
            ``stacked``, a kernel has units on both sides of its fan-in, of which the leading ones
            may be a stack; in ``update``, without ``params``.
        TypeError: in ``init``, for `LinearlyConstrained` kernels, which store coordinates, not
            weights.

    The projection sees parameters alone, so the result is the same under jit, pmap and shard_map
    with replicated parameters; sharded kernels need jit, and cost collectives. A step costs twelve
    iterations of three products each, of the kernel or its Gram matrix; Muon takes five. Under
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
        axes, _ = check_settings(params, layout, squared_radius, centered=False)
        stacks = broadcast(stacked, params, "stacked")
        for path, kernel, fan_in, stack in kernel_rows(params, axes, stacks):
            _checked_stack(kernel, fan_in, stack, f"the parameter {path!r}")
        return optax.EmptyState()

    def project_sum(kernel: Kernel, update: Kernel, axes: Axes, radius: Any, stack: Any) -> Kernel:
        stack = stack or 0
        step = _tangent_part(update, kernel, axes, radius, stack) if tangent else update
        return _nearest(kernel + step, axes, radius, stack, kernel)

    def project_whole(kernel: Kernel, update: Kernel, axes: Axes, *settings: Any) -> Kernel:
        # The kernel as one matrix has no sharding that follows from the kernel's own.
        return whole(lambda kernel, update: project_sum(kernel, update, axes, *settings))(
            kernel, update
        )

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        radii = broadcast(squared_radius, updates, "squared_radius")
        stacks = broadcast(stacked, updates, "stacked")
        return edit_updates(project_whole, layout, updates, params, radii, stacks), state

    return optax.GradientTransformation(init, update)


def _checked_stack(kernel: Any, axes: Axes, stacked: int | None, name: str) -> int:
    """Returns the number of axes that count kernels, which must be given if it is not clear."""
    if stacked is None:
        advice = (
            "Pass stacked=1 if the first axis counts kernels (2 if the first two do), stacked=0 if "
            "all of it is one matrix."
        )
        refuse_leading_units(kernel, axes, name, advice)
    return stacked or 0


def _nearest(
    wide: Kernel, axes: Axes, squared_radius: Any, stacked: int, old: Kernel | None = None
) -> Kernel:
    """Projects wide weights; if they are zero, returns the old ones, or zeros."""
    matrices, restore = as_matrices(wide, axes, stacked)
    squares = jnp.square(matrices).sum((-2, -1), keepdims=True)
    is_zero = squares <= SMALLEST
    length = norm_of_squares(squares, is_zero)
    projected = _polar_factor(matrices / length) * singular_value(matrices, squared_radius)
    fallback = jnp.zeros_like(matrices) if old is None else as_matrices(old, axes, stacked)[0]
    return restore(jnp.where(is_zero, fallback, projected))


def _polar_factor(matrix: Matrix) -> Matrix:
    """Returns U V' of matrices U S V' of Frobenius norm 1, and 0 of a zero matrix."""
    wide = matrix.shape[-2] < matrix.shape[-1]
    tall = matrix.mT if wide else matrix
    # ||S||_4 is an upper bound of the largest singular value, and close if all are similar.
    bound = jnp.sqrt(jnp.sqrt(jnp.square(_gram(tall)).sum((-2, -1), keepdims=True)))
    tall = tall / nonzero(bound)

    def iterate(x: Tall, polynomial: Float[Array, "3"]) -> tuple[Tall, None]:
        a, b, c = polynomial
        gram = _gram(x)
        return a * x + product(x, b * gram + c * product(gram, gram)), None

    tall, _ = jax.lax.scan(iterate, tall, jnp.asarray(POLYNOMIALS, tall.dtype))
    return tall.mT if wide else tall


def _tangent_part(
    update: Kernel, kernel: Kernel, axes: Axes, squared_radius: Any, stacked: int
) -> Kernel:
    """Removes the update's part W S, S symmetric, which changes the singular values of W."""
    (u, restore), (w, _) = as_matrices(update, axes, stacked), as_matrices(kernel, axes, stacked)
    square = jnp.square(singular_value(w, squared_radius))
    wide = w.shape[-2] < w.shape[-1]
    u, w = (u.mT, w.mT) if wide else (u, w)
    inner = product(w.mT, u)
    u = u - product(w, (inner + inner.mT) / (2 * square))
    return restore(u.mT if wide else u)


def _gram(tall: Tall) -> Float[Array, "... short short"]:
    return product(tall.mT, tall)
