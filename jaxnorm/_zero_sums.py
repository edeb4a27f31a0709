"""Units whose weights sum to zero: the projection of a tree, and of params + update."""

from functools import partial

import optax
from jaxtyping import PyTree

from jaxnorm._layout import Layout, flax_layout, map_with_axes
from jaxnorm._node import Axes
from jaxnorm._sphere import Kernel, center, check_kernels
from jaxnorm._sphere_projection import edit_updates


def center_kernels(params: PyTree, *, layout: Layout = flax_layout) -> PyTree:
    """Projects every kernel onto {w : 1'w = 0}, unit by unit.

    `center` of each kernel: w <- w - (1'w / m) 1, with m weights per unit. Call it once on initial
    parameters; `zero_sum_projection` keeps the sums at zero.

    Args:
        params: a tree of parameters; reparametrization nodes are centered in their kernel-shaped
            fields.
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        A tree of the same structure, shapes and types.

    Raises:
        ValueError: if the layout constrains nothing, or a unit has a single weight.
        TypeError: for `LinearlyConstrained` kernels, whose units sum to zero already.

    Warns:
        UserWarning: inside shard_map, as `project`.

    Under jit, pmap, shard_map and with sharded parameters like `project`.

    Example:
        >>> import jax.numpy as jnp
        >>> center_kernels({"kernel": jnp.array([[1.0], [3.0]])})["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Kutsuna 2019, section 3.1.
    """
    return map_with_axes(center, check_kernels(params, layout, centered=True), params)


def zero_sum_projection(layout: Layout = flax_layout) -> optax.GradientTransformation:
    """Edits the update so that the weights of each unit of params + update sum to zero.

    u <- center(w + u) - w: the exact Euclidean projection of params + update, unit by unit,
    whatever optimizer made the update. **Put it last in the chain**: a later transformation moves
    the weights off the set. The first update also lands on the set from parameters that are not on
    it. Transformations that use the size of a gradient (clipping, Adam, Muon) see its mean too: put
    `centered_gradient` before them.

    Args:
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        A stateless transformation whose ``update`` needs ``params``. The sums are zero to the
        rounding of the weights, after any number of steps.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing or a unit has a single weight; in
            ``update``, without ``params``.
        TypeError: in ``init``, for `LinearlyConstrained` kernels, whose units sum to zero already.

    Warns:
        UserWarning: in ``init`` inside shard_map, as `project`.

    Under jit, pmap and shard_map like `sphere_projection`.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[-1.0], [1.0]])}
        >>> tx = optax.chain(optax.sgd(1.0), zero_sum_projection())
        >>> gradient = {"kernel": jnp.array([[5.0], [3.0]])}
        >>> update, _ = tx.update(gradient, tx.init(params), params)
        >>> optax.apply_updates(params, update)["kernel"].tolist()
        [[-2.0], [2.0]]

    Source: Kutsuna 2019, section 3.2, as an edit of the update.
    """

    def init(params: PyTree) -> optax.EmptyState:
        check_kernels(params, layout, centered=True)
        return optax.EmptyState()

    def center_sum(kernel: Kernel, update: Kernel, axes: Axes) -> Kernel:
        return center(kernel + update, axes)

    # `centered_gradient` centers the update alone, and lets the rounding of sums add up.
    edit = optax.stateless(partial(edit_updates, center_sum, layout))
    return optax.GradientTransformation(init, edit.update)
