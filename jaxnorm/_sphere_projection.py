"""The sphere as an edit of the update: an optax transformation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from jaxnorm._constrain_updates import edit_updates
from jaxnorm._layout import (
    Layout,
    Setting,
    broadcast,
    flax_layout,
)
from jaxnorm._node import Axes
from jaxnorm._numerics import promote
from jaxnorm._paths import is_absent
from jaxnorm._phases import unit_sum
from jaxnorm._sphere import (
    Kernel,
    center,
    check_settings,
    squared_norm,
    to_sphere_in_one_pass,
)


class InitialNormsState(NamedTuple):
    """State of a `sphere_projection` whose units keep the norms that they had at ``init``.

    Attributes:
        squared_norms: the parameters' structure with ||w||^2 per unit of a constrained kernel, in
            float32 or wider, with the fan-in axes as axes of size 1 (each tap of a phase has the
            value of its phase); MaskedNode elsewhere.
    """

    squared_norms: PyTree


def sphere_projection(
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: Setting = True,
    tangent: bool = False,
) -> optax.GradientTransformation:
    """Edits the update so that params + update is on {w : ||w||^2 = c, and 1'w = 0 if centered}.

    The edit is the exact Euclidean projection of params + update, unit by unit, whatever optimizer
    made the update. **Put it last in the chain**: a later transformation moves the weights off the
    set. The first update also lands on the set from parameters that are not on it.

    Before it, `centered_gradient` is redundant for a linear optimizer (SGD, momentum, weight
    decay): both lead to the same weights, and the projection alone saves a pass. Under Adam they
    differ.

    Args:
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c; a positive number, a pytree prefix of numbers (the paper's c per layer)
            and of arrays with one value per channel, or None: each unit keeps the norm that it had
            at ``init``.
        centered: if True, the units are also zero-sum; a bool, or a pytree prefix of them.
        tangent: if True, the update is first projected onto the tangent space at the old weights,
            u <- u - (w'u / ||w||^2) w, with u and w centered if the units are: a step of Riemannian
            optimization with the projection as its retraction. The part of the optimizer's step
            that only changes the norm (weight decay, the radial part of Adam's step) then does not
            change the length of the step on the sphere.

    Returns:
        A transformation whose ``update`` needs ``params``; stateless, unless units keep their
        norms, which are then the state: one number per unit. If the centered point is zero the
        projection is not unique, and the unit keeps its old weights. An update has the type of the
        parameters, or its own if that is wider. If squares overflow it is NaN.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing, if a centered unit has a single
            weight, if c is not positive, or if a kernel that is to keep its norms is all zero; in
            ``update``, without ``params``.
        TypeError: in ``init``, for `LinearlyConstrained` kernels: ``centered`` keeps the sums of
            plain ones at zero.

    Warns:
        UserWarning: in ``init`` inside shard_map, as `project`.

    The projection is a function of one parameter at a time, so the result is the same under jit,
    pmap and shard_map with replicated parameters; kernels sharded along their fan-in need jit,
    which adds two all-reduces per kernel. In float32 the drift stays below 1e-5 for thousands of
    steps. In bfloat16 the weights are rounded after the projection: ||w||^2 is then right to 2^-7
    relative, and `project` after ``optax.apply_updates`` removes the rounding of the addition.
    float16 rounds the usual ``eps`` of Adam to 0, and its steps to NaN, with or without a
    projection: give it ``eps=1e-4``.

    Under ``optax.inject_hyperparams`` name ``layout`` in ``static_args``, because it takes any
    callable for a schedule.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[-1.0], [1.0]])}
        >>> tx = optax.chain(optax.sgd(0.1), sphere_projection())
        >>> gradient = {"kernel": jnp.array([[5.0], [3.0]])}
        >>> update, _ = tx.update(gradient, tx.init(params), params)
        >>> optax.apply_updates(params, update)["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Ikami et al. 2021, Eq. 11. Erratum: Eqs. 13-14 drop the factor sqrt(c). The tangent step
    is that of Absil et al. 2008, section 4.1 (projections as retractions).
    """

    def init(params: PyTree) -> Any:
        axes, radii = check_settings(params, layout, squared_radius, centered, keep_norms=True)
        norms = _squared_norms(params, axes, radii)
        return InitialNormsState(norms) if jax.tree.leaves(norms) else optax.EmptyState()

    def project_sum(
        kernel: Kernel, update: Kernel, axes: Axes, squared_radius: Any, centered: bool
    ) -> Kernel:
        step = _tangent_part(update, kernel, axes, centered) if tangent else update
        deviation, factor, exists = to_sphere_in_one_pass(
            kernel + step, axes, squared_radius, centered
        )
        return jnp.where(exists, deviation * factor, kernel)

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        radii = broadcast(squared_radius, updates, "squared_radius")
        if isinstance(state, InitialNormsState):
            radii = jax.tree.map(
                lambda norm, c: norm if c is None else c,
                *(state.squared_norms, radii),
                is_leaf=is_absent,
            )
        flags = broadcast(centered, updates, "centered")
        edited = edit_updates(project_sum, layout, updates, params, radii, flags)
        return edited, state

    return optax.GradientTransformation(init, update)


def _squared_norms(params: PyTree, axes: PyTree, radii: PyTree) -> PyTree:
    """Returns ||w||^2 per unit of the kernels without a radius, MaskedNode for other leaves."""

    def norms(leaf: Any, axes: Axes | None, radius: Any) -> Any:
        if axes is None or radius is not None:
            return optax.MaskedNode()
        return squared_norm(promote(leaf), axes)

    return jax.tree.map(norms, params, axes, radii)


def _tangent_part(update: Kernel, kernel: Kernel, axes: Axes, centered: bool) -> Kernel:
    """Removes the update's part along the weights, and its mean if units are centered.

    Weights that are zero have no tangent space: their update is only centered.
    """
    update = center(update, axes) if centered else update
    deviation, factor, _ = to_sphere_in_one_pass(kernel, axes, 1.0, centered)
    direction = deviation * factor
    return update - unit_sum(update * direction, axes) * direction
