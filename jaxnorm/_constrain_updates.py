"""Constraints at the end of an optax chain: any projection of a kernel edits the update."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from jaxnorm._checks import check_params
from jaxnorm._layout import Layout, flax_layout, kernel_axes, map_with_axes
from jaxnorm._node import Axes
from jaxnorm._numerics import promote
from jaxnorm._sphere import Kernel, check_kernels

#: ``projection(kernel, fan_in_axes) -> kernel``: a constraint is its projection.
Projection = Callable[[Kernel, Axes], Kernel]


def constrain_updates(
    projection: Projection, layout: Layout = flax_layout
) -> optax.GradientTransformation:
    """Edits the update so that each kernel of params + update is projected: u <- P(w + u) - w.

    A constraint is its projection P of one kernel. **Put the transformation last in the chain**: a
    later one moves the weights off the set. The first update also lands on the set from parameters
    that are not on it. The projection as a function of five lines::

        def norm_at_most_one(kernel, fan_in_axes):
            norm = jnp.sqrt(jnp.square(kernel).sum(fan_in_axes, keepdims=True))
            return kernel / jnp.maximum(norm, 1)


        params = map_kernels(norm_at_most_one, layout, params)
        tx = optax.chain(optax.adam(1e-3), constrain_updates(norm_at_most_one, layout))

    Args:
        projection: a function of one kernel, in float32 or wider, and of its fan-in axes (a tuple
            of negative ints), which returns weights of the same shape: `center`, a
            ``functools.partial`` of `project_to_sphere` or `project_to_stiefel`, or your own. Of a
            reparametrization node it gets the fields that have the kernel's shape.
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        A stateless transformation whose ``update`` needs ``params``. An update has the type of the
        parameters, or its own if that is wider. Weights to which no point of the set is nearest
        become what the projection makes of them; `sphere_projection` and `stiefel_projection` leave
        such weights as they were before the step.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing; in ``update``, without
            ``params``. An error that ``projection`` raises names the kernel's path in a note.
        TypeError: in ``init``, for `LinearlyConstrained` kernels, which store coordinates, not
            weights.

    Warns:
        UserWarning: in ``init`` inside shard_map, as `project`.

    The projection sees parameters alone, so the result is the same under jit, pmap and shard_map
    with replicated parameters. Kernels that are sharded along axes over which the projection sums
    need jit, which adds the collectives. Under ``optax.inject_hyperparams`` name both arguments in
    ``static_args``.

    Example:
        >>> params = {"kernel": jnp.array([[1.0], [2.0]])}
        >>> tx = optax.chain(optax.sgd(1.0), constrain_updates(lambda w, axes: jnp.maximum(w, 0)))
        >>> gradient = {"kernel": jnp.array([[5.0], [0.5]])}
        >>> update, _ = tx.update(gradient, tx.init(params), params)
        >>> optax.apply_updates(params, update)["kernel"].tolist()
        [[0.0], [1.5]]

    Source: projected gradient steps: Bertsekas 1976, "On the Goldstein-Levitin-Polyak gradient
    projection method"; as the last transformation, behind any optimizer: Ikami et al. 2021, Eq. 11.
    """

    def init(params: PyTree) -> optax.EmptyState:
        check_kernels(params, layout, centered=False)
        return optax.EmptyState()

    def target(kernel: Kernel, update: Kernel, axes: Axes) -> Kernel:
        return projection(kernel + update, axes)

    def edited(updates: PyTree, params: PyTree | None) -> PyTree:
        return edit_updates(target, layout, updates, params)

    return optax.GradientTransformation(init, optax.stateless(edited).update)


def edit_updates(
    target: Callable[..., Kernel],
    layout: Layout,
    updates: PyTree,
    params: PyTree | None,
    *settings: PyTree,
) -> PyTree:
    """Edits the update of each kernel so that kernel + update is a target.

    Args:
        target: ``target(kernel, update, fan_in_axes, *settings)``, of a kernel and its update in
            float32 or wider.
        layout: which leaves are kernels.
        updates: the tree of updates.
        params: the tree of parameters before them.
        *settings: trees of one value per leaf.

    Returns:
        The edited updates, in the wider type of the parameters and the updates. They lead to the
        stored value of the target, and so make up for its rounding; an update in bfloat16 would
        leave float32 weights off the set.
    """
    check_params(params, "the projection of params + update")

    def edit(update: Kernel, axes: Axes, kernel: Kernel, *values: Any) -> Kernel:
        wide = promote(kernel, update)
        projected = target(wide, promote(update, kernel), axes, *values)
        stored = promote(projected.astype(kernel.dtype), update)
        dtype = max(kernel.dtype, update.dtype, key=lambda kind: jnp.finfo(kind).bits)
        return (stored - wide).astype(dtype)

    axes = kernel_axes(layout, updates, require_some=False)
    return map_with_axes(edit, axes, updates, params, *settings)
