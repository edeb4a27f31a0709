"""Zero sums: centered gradients, and updates after which each unit's weights sum to zero."""

import optax
from jaxtyping import PyTree

from jaxnorm._constrain_updates import constrain_updates
from jaxnorm._layout import Layout, flax_layout, kernel_axes, map_with_axes
from jaxnorm._sphere import center, check_kernels


def centered_gradient(layout: Layout = flax_layout) -> optax.GradientTransformation:
    """Subtracts each unit's mean from the gradient: g <- g - (1'g / m) 1.

    Under SGD with momentum and weight decay, zero-sum weights then stay zero-sum. Under Adam they
    do not, whatever precedes it: put `sphere_projection` last in the chain. Before that projection
    and a linear optimizer (SGD, momentum, decay) the transformation changes nothing, since the
    projection removes the mean anyway: leave it out and save a pass.

    ``optax.centralize`` averages over all axes but the first, which is right for PyTorch's (out,
    in, ...); on a kernel of Flax it averages over the outputs. `centered_gradient` asks the layout.

    Args:
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        A stateless transformation.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing, or for units with a single
            weight: their centered gradient is zero, and they would never train.
        TypeError: in ``init``, for `LinearlyConstrained` kernels, whose gradients are centered
            already: leave it out.

    The transformation commutes with averaging over devices, so it gives the same under jit, pmap
    and shard_map, before or after the gradients' mean; shapes, types and shardings are kept.

    Example:
        >>> import jax.numpy as jnp
        >>> gradient = {"kernel": jnp.array([[1.0, 2.0], [3.0, 6.0]])}
        >>> tx = centered_gradient()
        >>> tx.update(gradient, tx.init(gradient))[0]["kernel"].tolist()
        [[-1.0, -2.0], [1.0, 2.0]]

    Source: Ikami et al. 2021, Algorithm 1; Yong et al. 2020 (gradient centralization).
    """

    def init(params: PyTree) -> optax.EmptyState:
        check_kernels(params, layout, centered=True)
        return optax.EmptyState()

    def centered(updates: PyTree, params: PyTree | None) -> PyTree:
        del params
        return map_with_axes(center, kernel_axes(layout, updates, require_some=False), updates)

    return optax.GradientTransformation(init, optax.stateless(centered).update)


def zero_sum_projection(layout: Layout = flax_layout) -> optax.GradientTransformation:
    """Edits the update so that the weights of each unit of params + update sum to zero.

    ``constrain_updates(center, layout)``, u <- center(w + u) - w: the exact Euclidean projection of
    params + update, unit by unit, whatever optimizer made the update. **Put it last in the chain**:
    a later transformation moves the weights off the set. The first update also lands on the set
    from parameters that are not on it. Transformations that use the size of a gradient (clipping,
    Adam, Muon) see its mean too: put `centered_gradient` before them.

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

    # `centered_gradient` centers the update alone, and lets the rounding of sums add up.
    return optax.GradientTransformation(init, constrain_updates(center, layout).update)
