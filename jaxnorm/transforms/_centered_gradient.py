"""Gradient centering: each unit's update has zero mean over its fan-in."""

import optax
from jaxtyping import PyTree

from jaxnorm._constraints._unit import center, check_sphere
from jaxnorm._trees._constrained import constrained_leaves, map_constrained
from jaxnorm._trees._layout import Layout, flax_layout


def centered_gradient(layout: Layout = flax_layout) -> optax.GradientTransformation:
    """Subtracts each unit's mean over its fan-in axes: g <- g - (1'g / m) 1.

    Under SGD with momentum and weight decay, zero-mean weights then stay zero-mean. Under Adam they
    do not, whatever comes before it: put `sphere_projection` last in the chain. Before that
    projection and a linear optimizer (SGD, momentum, decay) this transform changes nothing, since
    the projection removes the mean anyway: leave it out and save a pass.

    ``optax.centralize`` averages over all axes but the first, which is right for PyTorch's (out,
    in, ...): on a kernel of Flax it averages over the outputs. `centered_gradient` asks the layout.

    Args:
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        A stateless transformation.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing, or units with a single weight:
            their centered gradient is zero, and they would never train.
        TypeError: in ``init``, for `LinearlyConstrained` kernels, whose gradients are centered
            already: leave it out.

    It commutes with averaging over devices, so it means the same under jit, pmap and shard_map,
    before or after the gradients' mean; shapes, types and shardings are kept.

    Example:
        >>> import jax.numpy as jnp
        >>> gradient = {"kernel": jnp.array([[1.0, 2.0], [3.0, 6.0]])}
        >>> tx = centered_gradient()
        >>> tx.update(gradient, tx.init(gradient))[0]["kernel"].tolist()
        [[-1.0, -2.0], [1.0, 2.0]]

    Source: Ikami et al. 2021, Algorithm 1; Yong et al. 2020 (gradient centralization).
    """

    def init(params: PyTree) -> optax.EmptyState:
        for path, leaf, axes in constrained_leaves(layout, params, weights_alone=True):
            if axes is not None:
                check_sphere(leaf, axes, True, f"the parameter {path!r}")
        return optax.EmptyState()

    centered = optax.stateless(lambda updates, params: map_constrained(center, layout, updates))
    return optax.GradientTransformation(init, centered.update)
