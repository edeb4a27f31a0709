"""Updates of a fixed length relative to the weights: an optax transformation."""

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from jaxnorm._axes import refuse_leading_units
from jaxnorm._checks import POSITIVE, check_number, check_params
from jaxnorm._layout import Layout, flax_layout, kernel_axes, kernel_rows, map_with_axes
from jaxnorm._node import Axes
from jaxnorm._numerics import norm_of_squares, promote, root
from jaxnorm._sphere import SMALLEST, Kernel, check_kernels, check_nonzero, squared_norm

Number = float | np.floating[Any] | Float[Array, ""]

STACK_ADVICE = (
    "Name all axes of one kernel in the layout, layout_from_rules([(regex, (-2, -1))]), and pass "
    "per='unit'."
)


def fixed_step(
    relative: Number | Callable[[Int[Array, ""]], Number],
    *,
    layout: Layout = flax_layout,
    per: Literal["unit", "kernel"] = "unit",
) -> optax.GradientTransformation:
    """Rescales each kernel's update to a length relative to its weights.

    u_i <- r ||w_i|| u_i / ||u_i|| per unit i, or U <- r ||W|| U / ||U|| per kernel, in Frobenius
    norms. **Put it between the optimizer and the projection**: a step orthogonal to weights of
    fixed norm then turns them by the angle arctan(r), whatever the gradient's size, the width or
    the depth. The learning rate and the schedule of the optimizer before it drop out at the
    kernels: ``relative`` takes their place. Other leaves keep the optimizer's update.

    Args:
        relative: r, a positive number, or a schedule: a function of the number of updates so far.
        layout: which leaves are kernels, and their fan-in axes.
        per: "unit" for the norms of each unit, "kernel" for those of each whole kernel.

    Returns:
        A transformation whose ``update`` needs ``params``; stateless, or with the count of a
        schedule as state (``optax.ScaleByScheduleState``). The direction is kept. An update of zero
        (of a norm below 1e-18) stays zero, and a unit whose weights are zero gets an update of
        zero. If squares overflow float32 the update is NaN. Norms are computed in float32 or
        wider; shapes, types and shardings are kept.

    Raises:
        ValueError: at once, for ``relative`` that is not positive or another ``per``; in ``init``,
            if the layout constrains nothing, for a kernel that is all zero, which would never move,
            and, per kernel, for units on both sides of the fan-in, which may be a stack; in
            ``update``, without ``params``.
        TypeError: in ``init``, for `LinearlyConstrained` kernels, which store coordinates, not
            weights.

    Warns:
        UserWarning: in ``init`` inside shard_map, as `project`: norms are those of each shard.

    Under jit, pmap and shard_map with replicated parameters the result is the same. Kernels that
    are sharded along the axes of their norms need jit, which sums two numbers per norm over the
    devices; the compiler puts those of all kernels into one all-reduce. Per unit, kernels that are
    sharded along their units need no communication. Under ``optax.inject_hyperparams`` name
    ``layout`` in ``static_args``, because it takes any callable for a schedule.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[3.0, 0.0], [4.0, 2.0]])}
        >>> tx = optax.chain(optax.sgd(1.0), fixed_step(0.5))
        >>> gradient = {"kernel": jnp.array([[8.0, 0.0], [0.0, 4.0]])}
        >>> update, _ = tx.update(gradient, tx.init(params), params)
        >>> (update["kernel"] + 0).tolist()
        [[-2.5, 0.0], [0.0, -1.0]]

    Source: Wen et al. 2026, "Fantastic pretraining optimizers and where to find them II:
    Hyperball optimization" (arXiv 2606.16899), per kernel: AdamH and MuonH.
    """
    if per not in ("unit", "kernel"):
        raise ValueError(f"per is {per!r}; wanted 'unit' or 'kernel'.")
    if not callable(relative):
        check_number(relative, POSITIVE, "relative", "0.01 for example")

    def init(params: PyTree) -> Any:
        for path, kernel, axes in kernel_rows(params, check_kernels(params, layout, False)):
            name = f"the parameter {path!r}"
            check_nonzero(kernel, name)
            if per == "kernel":
                refuse_leading_units(kernel, axes, name, STACK_ADVICE)
        if not callable(relative):
            return optax.EmptyState()
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        check_params(params, "fixed_step")
        length = relative(state.count) if callable(relative) else relative

        def rescaled(update: Kernel, axes: Axes, kernel: Kernel) -> Kernel:
            norm_axes = axes if per == "unit" else tuple(range(-kernel.ndim, 0))
            return _rescaled(update, kernel, norm_axes, length)

        axes = kernel_axes(layout, updates, require_some=False)
        edited = map_with_axes(rescaled, axes, updates, params)
        if callable(relative):
            state = optax.ScaleByScheduleState(optax.safe_increment(state.count))
        return edited, state

    return optax.GradientTransformation(init, update)


def _rescaled(update: Kernel, kernel: Kernel, axes: Axes, relative: Number) -> Kernel:
    """Returns r ||w|| u / ||u||, with norms over ``axes``; zero for an update of zero."""
    wide, weights = promote(update, kernel), promote(kernel, update)
    squares = squared_norm(wide, axes)
    # Written so that NaN is not zero: it must stay visible in the result.
    zero = squares <= SMALLEST
    norm = norm_of_squares(squares, zero)
    length = jnp.asarray(relative, wide.dtype) * root(squared_norm(weights, axes))
    return (wide * jnp.where(zero, 0.0, length / norm)).astype(update.dtype)
